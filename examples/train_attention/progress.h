#pragma once

#include <heed/heed.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

/// The line that tells how training goes: one that is refreshed on a terminal, plain lines elsewhere, nothing when quiet. Writes every step to a CSV
/// file when there is one.
class Progress {
 public:
  Progress(heed::Index steps, heed::Index tokens_per_step, bool quiet, const std::string& csv, std::string score_name);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Step counts from 1.
  void step(heed::Index step, double loss, double score);
  double seconds() const;
  /// Of every step.
  const std::vector<double>& losses() const { return losses_; }
  const std::vector<double>& scores() const { return scores_; }

 private:
  void print(heed::Index step) const;

  heed::Index steps_, tokens_per_step_;
  bool quiet_, terminal_;
  std::string score_name_;
  std::ofstream csv_;
  std::chrono::steady_clock::time_point start_, last_print_;
  double loss_ = 0, score_ = 0;  // smoothed over some 20 steps
  std::vector<double> losses_, scores_;
  bool open_line_ = false;
};
