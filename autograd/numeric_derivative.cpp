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

void NumericColumn::measure(Line& line, const Evaluate& evaluate, const Values& base, double step, double epsilon) {
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
  base_ = base;
  epsilon_ = epsilon;
  magnitude_ = 0;
  for (double v : base) magnitude_ = std::max(magnitude_, std::abs(v));
}

double NumericColumn::derivative(std::size_t i) const {
  const double coarse = (plus_[i] - minus_[i]) / (2 * full_), fine = (half_plus_[i] - half_minus_[i]) / (2 * half_);
  return (4 * fine - coarse) / 3;
}

double NumericColumn::error(std::size_t i) const {
  const double coarse = (plus_[i] - minus_[i]) / (2 * full_), fine = (half_plus_[i] - half_minus_[i]) / (2 * half_);
  const double size = std::max({std::abs(plus_[i]), std::abs(minus_[i]), 1e-2 * magnitude_});
  return std::abs(fine - coarse) / 3 + roundings * epsilon_ * size / half_;
}

const char* text(Verdict v) {
  constexpr const char* texts[] = {"ok", "wrong", "kink", "nan"};
  return texts[static_cast<int>(v)];
}

Judgment judge(Line& line, const Evaluate& evaluate, const Values& base, double step, double epsilon, std::size_t value, double analytic) {
  NumericColumn column;
  Judgment best{Verdict::wrong, 0, 0};
  int one_sided = 0, rungs = 0;
  for (double h = step; rungs < 4; h /= 16, ++rungs) {
    column.measure(line, evaluate, base, h, epsilon);
    const double d = column.derivative(value), e = column.error(value), left = column.from_left(value), right = column.from_right(value);
    if (std::isnan(d) || std::isnan(analytic)) return {Verdict::nan, d, e};
    if (rungs == 0 || e < best.error) best = {Verdict::wrong, d, e};
    // What looked wrong was a large third derivative, or a kink nearby that a finer step no longer meets.
    if (std::abs(analytic - d) <= e && e < 1e-3 * std::max(std::abs(analytic), std::abs(d))) return {Verdict::ok, d, e};
    // Derivatives from both sides draw together as h shrinks, except at a kink.
    const double bound = 8 * roundings * epsilon * std::max(std::abs(base[value]), std::abs(d) * h) / h;
    if (std::abs(left - right) > bound + 0.01 * (std::abs(left) + std::abs(right))) ++one_sided;
  }
  if (one_sided == rungs) best.verdict = Verdict::kink;
  return best;
}

}  // namespace heed::detail
