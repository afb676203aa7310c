#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

using Clock = std::chrono::steady_clock;

Progress::Progress(heed::Index steps, heed::Index tokens_per_step, bool quiet, const std::string& csv, std::string score_name)
    : steps_(steps),
      tokens_per_step_(tokens_per_step),
      quiet_(quiet),
      terminal_(isatty(STDOUT_FILENO) != 0),
      score_name_(std::move(score_name)),
      start_(Clock::now()) {
  if (csv.empty()) return;
  csv_.open(csv);
  if (!csv_) throw std::runtime_error(fmt::format("--csv: cannot write {}", csv));
  csv_ << "step,loss," << score_name_ << ",tokens_per_second\n";
}

Progress::~Progress() {
  if (open_line_) fmt::print("\n");
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::step(heed::Index step, double loss, double score) {
  losses_.push_back(loss);
  scores_.push_back(score);
  loss_ = step == 1 ? loss : 0.95 * loss_ + 0.05 * loss;
  score_ = step == 1 ? score : 0.95 * score_ + 0.05 * score;
  if (csv_.is_open())
    csv_ << fmt::format("{},{:.6g},{:.6g},{:.0f}\n", step, loss, score, static_cast<double>(step * tokens_per_step_) / std::max(seconds(), 1e-9));
  if (quiet_) return;
  if (step == 1) fmt::print("Loss and {}: running averages over some 20 steps\n", score_name_);
  const bool last = step == steps_;
  if (terminal_) {
    const auto now = Clock::now();
    if (!last && now - last_print_ < std::chrono::milliseconds(100)) return;
    last_print_ = now;
    print(step);
  } else if (last || step == 1 || step % std::max<heed::Index>(steps_ / 10, 1) == 0) {
    print(step);
  }
}

void Progress::print(heed::Index step) const {
  const double elapsed = seconds(), left = elapsed / static_cast<double>(step) * static_cast<double>(steps_ - step);
  const std::string line = fmt::format("step {:>5}/{}  loss {:.4f}  {} {:.4f}  {:>7.0f} tokens/s  {:.0f} s left", step, steps_, loss_, score_name_,
                                       score_, static_cast<double>(step * tokens_per_step_) / std::max(elapsed, 1e-9), left);
  if (terminal_) {
    fmt::print("\r{:<79}", line);
    const_cast<Progress*>(this)->open_line_ = true;
  } else {
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}
