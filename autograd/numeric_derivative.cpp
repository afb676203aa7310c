#include "numeric_derivative.h"

#include <algorithm>
#include <cmath>

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

double step_for(double element, double typical, double epsilon) {
  // Two steps extrapolated leave h^4; rounding leaves epsilon / h: they meet near epsilon^(1/5).
  const double size = std::max(std::abs(element), typical);
  return 0.5 * std::pow(epsilon, 0.2) * (size > 0 && std::isfinite(size) ? size : 1.0);
}

double typical_size(const Tensor& t) {
  double squares = 0;
  for (double v : t.to_vector<double>()) squares += v * v;
  return t.numel() ? std::sqrt(squares / static_cast<double>(t.numel())) : 0;
}

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
  // The distance is that between the points which the dtype really holds.
  const auto pair = [&](double h, Values& plus, Values& minus) {
    const double above = line.move(h);
    evaluate(plus);
    const double below = line.move(-h);
    evaluate(minus);
    return (above - below) / 2;
  };
  full_ = pair(step, plus_, minus_);
  half_ = pair(step / 2, half_plus_, half_minus_);
  line.move(0);
  base_ = &base;
}

double NumericColumn::derivative(std::size_t i) const {
  const double coarse = (plus_[i] - minus_[i]) / (2 * full_), fine = (half_plus_[i] - half_minus_[i]) / (2 * half_);
  return (4 * fine - coarse) / 3;
}

double NumericColumn::rounding(std::size_t i) const {
  const double size = std::max(std::abs(plus_[i]), std::abs(minus_[i]));
  return (roundings * base_->epsilon * size + beyond_seen * base_->noise[i]) / half_;
}

double NumericColumn::error(std::size_t i) const {
  const double coarse = (plus_[i] - minus_[i]) / (2 * full_), fine = (half_plus_[i] - half_minus_[i]) / (2 * half_);
  // A third of it would do where the third derivative is smooth; where the second one jumps, as x |x| does at 0, the error is as large as this.
  return std::abs(fine - coarse) + rounding(i);
}

double NumericColumn::one_sided_gap(std::size_t i) const {
  const double left = (base_->values[i] - half_minus_[i]) / half_, right = (half_plus_[i] - base_->values[i]) / half_;
  return std::max(std::abs(left - right) - 4 * rounding(i), 0.0);
}

const char* text(Verdict v) {
  constexpr const char* texts[] = {"ok", "wrong", "kink", "nan"};
  return texts[static_cast<int>(v)];
}

Judgment judge(Line& line, const Evaluate& evaluate, const Baseline& base, double step, std::size_t value, double analytic) {
  NumericColumn column;
  Judgment first{Verdict::wrong, 0, 0}, best{Verdict::wrong, 0, 0};
  double first_gap = 0, last_gap = 0;
  constexpr int rungs = 4;
  for (int rung = 0; rung < rungs; ++rung, step /= 16) {
    column.measure(line, evaluate, base, step);
    const double d = column.derivative(value), e = column.error(value);
    if (std::isnan(d) || std::isnan(analytic)) return {Verdict::nan, d, e};
    if (rung == 0) first = {Verdict::wrong, d, e}, first_gap = column.one_sided_gap(value);
    if (rung == 0 || e < best.error) best = {Verdict::wrong, d, e};
    last_gap = column.one_sided_gap(value);
    // The finer step agrees. It is believed where it is sharp, or where it contradicts the first: that one met a large third derivative or a kink
    // nearby.
    const double size = std::max({std::abs(analytic), std::abs(d), std::abs(first.numeric)});
    const bool contradicts = std::abs(d - first.numeric) > e + first.error;
    if (std::abs(analytic - d) <= e && e <= (contradicts ? 1e-3 : 1e-6) * size) return {Verdict::ok, d, e};
  }
  // Derivatives from both sides draw together as the step shrinks, by 16 a rung, except at a kink.
  if (last_gap > 0.25 * first_gap && last_gap > 0.01 * std::abs(best.numeric)) best.verdict = Verdict::kink;
  return best;
}

}  // namespace heed::detail
