#include "numeric_derivative.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "grad_mode.h"
#include "op.h"
#include "ops.h"

namespace heed::detail {
namespace {

/// Rounding errors of a function value, in units of its last place: those of a sum of some dozen terms.
constexpr double roundings = 32;
/// How often the inputs are shaken to see what rounding does, and how far beyond the largest jump seen it may go.
constexpr int shakes = 6;
constexpr double beyond_seen = 8;

Index offset_of(const Tensor& t, Index element) {
  Index offset = 0;
  for (std::size_t d = t.shape().size(); d-- > 0; element /= t.shape()[d]) offset += element % t.shape()[d] * t.strides()[d];
  return offset;
}

/// The values at h and at -h, and half the distance between the points which the dtype really holds.
double look_around(Line& line, const Evaluate& evaluate, double h, Values& plus, Values& minus) {
  const double above = line.move(h);
  evaluate(plus);
  const double below = line.move(-h);
  evaluate(minus);
  return (above - below) / 2;
}

}  // namespace

ElementLine::ElementLine(const Tensor& t, Index element) : tensor_(t), offset_(offset_of(t, element)), version_(t.ref()->storage->version()) {
  start_ = dispatch_float(t.dtype(), [&]<class T>() { return static_cast<double>(tensor_.data<T>()[offset_]); });
}

ElementLine::~ElementLine() {
  store(start_);
  tensor_.ref()->storage->restore_version(version_);
}

double ElementLine::move(double t) { return store(start_ + t) - start_; }

double ElementLine::store(double x) {
  return dispatch_float(tensor_.dtype(), [&]<class T>() { return static_cast<double>(tensor_.mutable_data<T>()[offset_] = static_cast<T>(x)); });
}

DirectionLine::DirectionLine(const Tensor& t, const Tensor& direction)
    : tensor_(t), direction_(direction), kept_(t.detach().clone()), version_(t.ref()->storage->version()) {}

DirectionLine::~DirectionLine() {
  write(kept_);
  tensor_.ref()->storage->restore_version(version_);
}

double DirectionLine::move(double t) {
  const NoGrad off;
  write(kept_ + direction_ * t);
  return t;
}

void DirectionLine::write(const Tensor& value) {
  const NoGrad off;
  tensor_.copy_(value);
}

double size_for(double element, double typical) {
  const double size = std::max(std::abs(element), typical);
  return size > 0 && std::isfinite(size) ? size : 1.0;
}

double step_for(double element, double typical, double epsilon) {
  // Two steps extrapolated leave h^4; rounding leaves epsilon / h: they meet near epsilon^(1/5).
  return 0.5 * std::pow(epsilon, 0.2) * size_for(element, typical);
}

double typical_size(const Tensor& t) {
  double squares = 0;
  for (double v : t.to_vector<double>()) squares += v * v;
  return t.numel() ? std::sqrt(squares / static_cast<double>(t.numel())) : 0;
}

double Baseline::rounding(std::size_t i, double size) const { return roundings * epsilon * size + beyond_seen * noise[i] + jitter; }

Baseline baseline(const Evaluate& evaluate, double epsilon, const std::function<void(double)>& shake) {
  Baseline base;
  base.epsilon = epsilon;
  evaluate(base.values);
  base.noise.assign(base.values.size(), 0.0);
  double largest = 0;
  for (double v : base.values) largest = std::max(largest, std::abs(v));
  Values shaken;
  for (int i = 0; i < shakes; ++i) {
    shake(epsilon);
    evaluate(shaken);
    for (std::size_t v = 0; v < shaken.size() && v < base.values.size(); ++v)
      base.noise[v] = std::max(base.noise[v], std::abs(shaken[v] - base.values[v]));
  }
  shake(0);
  // More than this is no rounding but a jump of the function, which must not pass for noise.
  for (double& n : base.noise) n = n <= 4096 * epsilon * largest ? n : 0;
  return base;
}

void NumericColumn::measure(Line& line, const Evaluate& evaluate, const Baseline& base, double step) {
  full_ = look_around(line, evaluate, step, plus_, minus_);
  half_ = look_around(line, evaluate, step / 2, half_plus_, half_minus_);
  line.move(0);
  base_ = &base;
}

double NumericColumn::derivative(std::size_t i) const {
  const double coarse = (plus_[i] - minus_[i]) / (2 * full_), fine = (half_plus_[i] - half_minus_[i]) / (2 * half_);
  return (4 * fine - coarse) / 3;
}

double NumericColumn::rounding(std::size_t i) const {
  const double size = std::max(std::abs(plus_[i]), std::abs(minus_[i]));
  return base_->rounding(i, size) / half_;
}

double NumericColumn::moved(std::size_t i) const { return std::abs(half_plus_[i] - half_minus_[i]); }

double NumericColumn::error(std::size_t i) const {
  const double coarse = (plus_[i] - minus_[i]) / (2 * full_), fine = (half_plus_[i] - half_minus_[i]) / (2 * half_);
  // A third of it would do where the third derivative is smooth; where the second one jumps, as x |x| does at 0, the error is as large as this.
  return std::abs(fine - coarse) + rounding(i);
}

double NumericColumn::one_sided_gap(std::size_t i) const {
  const double left = (base_->values[i] - half_minus_[i]) / half_, right = (half_plus_[i] - base_->values[i]) / half_;
  return std::max(std::abs(left - right) - 4 * rounding(i), 0.0);
}

void WideColumn::measure(Line& line, const Evaluate& evaluate, const Baseline& base, double widest) {
  constexpr std::size_t count = 12;
  plus_.resize(count), minus_.resize(count), steps_.resize(count);
  leaps_.assign(base.values.size(), std::numeric_limits<double>::infinity());
  std::vector<bool> stands(base.values.size(), false);
  const auto note_leaps = [&](const Values& plus, const Values& minus) {
    for (std::size_t i = 0; i < leaps_.size(); ++i) {
      const double moved = std::abs(plus[i] - minus[i]);
      if (moved == 0) stands[i] = true;
      if (moved > 0) leaps_[i] = std::min(leaps_[i], moved);
    }
  };
  for (std::size_t k = 0; k < count; ++k) {
    steps_[k] = look_around(line, evaluate, std::ldexp(widest, -static_cast<int>(k)), plus_[k], minus_[k]);
    note_leaps(plus_[k], minus_[k]);
  }
  Values plus, minus;
  for (int k : {16, 20, 24}) {  // too narrow for a derivative
    look_around(line, evaluate, std::ldexp(widest, -k), plus, minus);
    note_leaps(plus, minus);
  }
  for (std::size_t i = 0; i < leaps_.size(); ++i)
    if (!stands[i] || !std::isfinite(leaps_[i])) leaps_[i] = 0;
  line.move(0);
  base_ = &base;
}

WideColumn::Estimate WideColumn::estimate(std::size_t i) const {
  Estimate best{0, std::numeric_limits<double>::infinity()};
  std::vector<double> before, row;  // row k: extrapolations that end at step k, in rising order
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    const double slope = (plus_[k][i] - minus_[k][i]) / (2 * steps_[k]);
    if (!std::isfinite(slope)) {  // a step that leaves the function's domain begins the table anew
      before.clear();
      continue;
    }
    // An extrapolation is a sum of slopes whose factors' sizes sum to less than 2.
    const double rounding = 2 * std::max(leaps_[i], base_->rounding(i, std::max(std::abs(plus_[k][i]), std::abs(minus_[k][i])))) / steps_[k];
    row.assign(1, slope);
    double factor = 1;
    for (std::size_t order = 1; order <= before.size(); ++order) {
      factor *= 4;
      row.push_back(row.back() + (row.back() - before[order - 1]) / (factor - 1));
      const double unsettled = std::max(std::abs(row[order] - row[order - 1]), std::abs(row[order] - before[order - 1]));
      if (unsettled + rounding < best.error) best = {row[order], unsettled + rounding};
    }
    before.swap(row);
  }
  return best;
}

const char* text(Verdict v) {
  constexpr const char* texts[] = {"ok", "wrong", "kink", "nan", "undecided"};
  return texts[static_cast<int>(v)];
}

Judgment judge(Line& line, const Evaluate& evaluate, const Baseline& base, double step, std::size_t value, double analytic) {
  NumericColumn column;
  Judgment first{Verdict::nan, 0, 0}, best{Verdict::nan, 0, 0};
  double first_gap = 0, last_gap = 0, first_step = 0, leap = std::numeric_limits<double>::infinity();
  bool left_domain = false, stands = false;
  constexpr int rungs = 4, most_rungs = 12;
  for (int rung = 0; rung < most_rungs; ++rung, step /= 16) {
    column.measure(line, evaluate, base, step);
    const double d = column.derivative(value), e = column.error(value);
    if (std::isnan(analytic)) return {Verdict::nan, d, e};
    if (std::isnan(d)) {  // a wide step may leave the domain, as that of a square root near 0
      left_domain = true;
      if (best.verdict == Verdict::nan) best = {Verdict::nan, d, e};
      continue;
    }
    const bool is_first = best.verdict == Verdict::nan;
    if (is_first) first = {Verdict::wrong, d, e}, first_gap = column.one_sided_gap(value), first_step = column.half_step();
    const double moved = column.moved(value);
    if (moved > 0) leap = std::min(leap, moved);
    stands |= moved == 0;
    const double size = std::max({std::abs(analytic), std::abs(d), std::abs(first.numeric)});
    const bool sharp = e <= 1e-2 * size;
    if (rung >= rungs && !is_first && column.rounding(value) > 1e-2 * size) break;
    // The finer step is the better one where it is sharper, or contradicts: what lies within the wider one is then not all like the point itself.
    if (is_first || e < best.error || (sharp && std::abs(d - best.numeric) > e + best.error)) best = {Verdict::wrong, d, e};
    last_gap = column.one_sided_gap(value);
    // It agrees. It is believed where it is sharp, or where it contradicts the first: that one met a large third derivative, a kink nearby, or the
    // domain's edge.
    const bool contradicts = left_domain || std::abs(d - first.numeric) > e + first.error;
    if (std::abs(analytic - d) <= e && e <= (contradicts ? 1e-3 : 1e-6) * size) return {Verdict::ok, d, e};
  }
  if (best.verdict == Verdict::nan) return best;
  // Derivatives from both sides draw together as the step shrinks, by 16 a rung, except at a kink.
  if (last_gap > 0.25 * first_gap && last_gap > 0.01 * std::abs(best.numeric)) best.verdict = Verdict::kink;
  if (best.verdict == Verdict::wrong && stands) {
    const double leaps = first.error + 2 * leap / first_step;
    if (std::abs(analytic - first.numeric) <= leaps) return {Verdict::undecided, first.numeric, leaps};
  }
  return best;
}

}  // namespace heed::detail
