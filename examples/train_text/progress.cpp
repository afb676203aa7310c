#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

using heed::Index;
using Clock = std::chrono::steady_clock;

namespace {

constexpr const char* header = "step,loss,bits_per_character,norm,lr,ms,tokens_per_second,held_out_bits_per_character";
constexpr double absent = std::numeric_limits<double>::quiet_NaN();

std::string duration(double seconds) {
  const auto s = static_cast<Index>(seconds + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60) : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

Progress::Progress(Index steps, Index done, bool quiet, std::string csv)
    : steps_(steps), first_(done), quiet_(quiet), terminal_(isatty(STDOUT_FILENO) != 0), csv_(std::move(csv)) {
  if (csv_.empty()) return;
  if (done > 0) read_rows(done);
  write_rows();
}

Progress::~Progress() {
  end_line();
  try {
    write_rows();
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_text: {}\n", e.what());
  }
}

void Progress::read_rows(Index done) {
  std::ifstream in(csv_);
  if (!in) return;
  std::string line;
  if (!std::getline(in, line) || line != header) throw std::runtime_error(fmt::format("--csv: {} is not a file of train_text", csv_));
  while (std::getline(in, line)) {
    long long step = 0;
    Row row{{}, absent};
    StepReport& r = row.report;
    const int n = std::sscanf(line.c_str(), "%lld,%lf,%lf,%lf,%lf,%lf,%lf,%lf", &step, &r.loss, &r.bits, &r.norm, &r.lr, &r.ms, &r.tokens_per_second,
                              &row.held_out);
    if (n < 7) throw std::runtime_error(fmt::format("--csv: {}: not a row of train_text: {}", csv_, line));
    r.step = static_cast<Index>(step);
    if (r.step <= done) rows_.push_back(row);
  }
}

void Progress::write_rows() const {
  if (csv_.empty()) return;
  const std::string half = csv_ + ".tmp";
  {
    std::ofstream out(half);
    out << header << '\n';
    for (const auto& [r, held_out] : rows_)
      out << fmt::format("{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.0f},{}\n", r.step, r.loss, r.bits, r.norm, r.lr, r.ms, r.tokens_per_second,
                         std::isnan(held_out) ? "" : fmt::format("{:.6g}", held_out));
    if (!out.flush()) throw std::runtime_error(fmt::format("--csv: cannot write {}", csv_));
  }
  std::filesystem::rename(half, csv_);
}

void Progress::end_line() {
  if (open_line_) fmt::print("\n");
  open_line_ = false;
}

void Progress::step(const StepReport& r) {
  smoothed_ = r.step == first_ + 1 ? r.bits : 0.95 * smoothed_ + 0.05 * r.bits;
  milliseconds_ += r.ms;
  rows_.push_back({r, absent});
  const auto now = Clock::now();
  if (now - last_write_ > std::chrono::seconds(5)) write_rows(), last_write_ = now;
  const bool last = r.step == steps_;
  if (quiet_ || (terminal_ ? !last && now - last_print_ < std::chrono::milliseconds(200)
                           : !last && r.step != first_ + 1 && r.step % (steps_ > 0 ? std::max<Index>(steps_ / 20, 1) : 20) != 0))
    return;
  last_print_ = now;
  const std::string of = steps_ > 0 ? fmt::format("/{}", steps_) : "";
  const std::string left =
      steps_ > 0
          ? fmt::format("  {} left", duration(1e-3 * milliseconds_ / static_cast<double>(r.step - first_) * static_cast<double>(steps_ - r.step)))
          : "";
  fmt::print("{}step {:>5}{}  loss {:.3f}  bits/char {:.3f}  norm {:.2f}  lr {:.1e}  {:.{}f} ms  {:.0f} tokens/s{}{}", terminal_ ? "\r" : "", r.step,
             of, r.loss, smoothed_, r.norm, r.lr, r.ms, r.ms < 10 ? 1 : 0, r.tokens_per_second, left, terminal_ ? "  " : "\n");
  open_line_ = terminal_;
  std::fflush(stdout);
}

void Progress::held_out(Index step, double bits) {
  if (!rows_.empty() && rows_.back().report.step == step)
    rows_.back().held_out = bits;
  else
    rows_.push_back({{.step = step, .loss = absent, .bits = absent, .norm = absent, .lr = absent, .ms = absent, .tokens_per_second = absent}, bits});
}

void Progress::write_svg(const std::string& path, const std::string& title, const Baselines& baselines) const {
  heed::nn::SvgCurve train{"training", {}, {}}, held_out{"held out", {}, {}};
  double smoothed = absent;
  for (const auto& [r, bits] : rows_) {
    const auto x = static_cast<double>(r.step);
    if (!std::isnan(r.bits)) {
      smoothed = std::isnan(smoothed) ? r.bits : 0.95 * smoothed + 0.05 * r.bits;
      train.x.push_back(x), train.y.push_back(smoothed);
    }
    if (!std::isnan(bits)) held_out.x.push_back(x), held_out.y.push_back(bits);
  }
  const double end = rows_.empty() ? 1 : static_cast<double>(rows_.back().report.step);
  std::vector<heed::nn::SvgCurve> curves{train, held_out};
  const auto line = [&](const std::string& name, double y) { curves.push_back({fmt::format("{} {:.2f}", name, y), {0, end}, {y, y}}); };
  line("unigram", baselines.unigram);
  line("bigram", baselines.bigram);
  if (baselines.xz) line("xz -9", *baselines.xz);
  std::ofstream out(path);
  out << heed::nn::svg_curves(curves, {.title = title, .x_label = "step", .y_label = "bits per character"});
  if (!out.flush()) throw std::runtime_error(fmt::format("--svg: cannot write {}", path));
}
