#pragma once

#include <heed/heed.h>

#include <chrono>
#include <string>
#include <vector>

#include "text.h"

/// What is known after a step. Bits are per character.
struct StepReport {
  heed::Index step = 0;  // from 1
  double loss = 0;       // nats a token
  double bits = 0, norm = 0, lr = 0, ms = 0, tokens_per_second = 0;
};

/// The line that tells how training goes (refreshed on a terminal, now and then elsewhere), the CSV file and the curve.
class Progress {
 public:
  /// `steps` is 0 while it is not known. Rows of an older CSV file up to `done` steps are kept, as the beginning of the same run. Throws when the
  /// file cannot be written or is another.
  Progress(heed::Index steps, heed::Index done, bool quiet, std::string csv);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_steps(heed::Index steps) { steps_ = steps; }
  void step(const StepReport&);
  /// Bits a character on the held-out part after that step.
  void held_out(heed::Index step, double bits);
  /// Ends a line that is still open, so that something else can be printed.
  void end_line();

  /// Curves of training (smoothed) and held-out bits, and the baselines as lines.
  void write_svg(const std::string& path, const std::string& title, const Baselines&) const;

 private:
  struct Row {
    StepReport report;
    double held_out;  // NaN where it was not measured
  };
  void read_rows(heed::Index done);
  void write_rows() const;

  heed::Index steps_, first_;
  bool quiet_, terminal_, open_line_ = false;
  std::string csv_;
  std::vector<Row> rows_;
  double smoothed_ = 0, milliseconds_ = 0;
  std::chrono::steady_clock::time_point last_print_, last_write_;
};
