#include "numeric_derivative.h"

#include <algorithm>
#include <cmath>

namespace heed::detail {
namespace {

/// Rounding errors of a function value in units of its last place: a sum of some dozen terms.
constexpr double roundings = 32;

Index offset_of(const Tensor& t, Index element) {
  Index offset = 0;
  for (std::size_t d = t.shape().size(); d-- > 0; element /= t.shape()[d]) offset += element % t.shape()[d] * t.strides()[d];
  return offset;
}

}  // namespace

Nudge::Nudge(Tensor t, Index element) : tensor_(std::move(t)), offset_(offset_of(tensor_, element)) {
  original_ = tensor_.dtype() == f64 ? tensor_.data<double>()[offset_] : static_cast<double>(tensor_.data<float>()[offset_]);
}

double Nudge::set(double x) {
  if (tensor_.dtype() == f64) return tensor_.mutable_data<double>()[offset_] = x;
  return static_cast<double>(tensor_.mutable_data<float>()[offset_] = static_cast<float>(x));
}

void Nudge::set_bits() { set(original_); }

double step_for(double value, double typical, double epsilon) {
  // Two steps extrapolated leave h^4; rounding leaves epsilon / h: they meet near epsilon^(1/5).
  const double scale = std::max(std::abs(value), typical);
  return 0.5 * std::pow(epsilon, 0.2) * (scale > 0 && std::isfinite(scale) ? scale : 1.0);
}

void NumericColumn::measure(Nudge& nudge, const Evaluate& evaluate, const Values& base, double step, double epsilon) {
  const double x = nudge.value();
  // The distance between the points that the dtype really holds.
  const auto pair = [&](double h, Values& plus, Values& minus) {
    const double above = nudge.set(x + h);
    evaluate(plus);
    const double below = nudge.set(x - h);
    evaluate(minus);
    return (above - below) / 2;
  };
  full_ = pair(step, plus_, minus_);
  half_ = pair(step / 2, half_plus_, half_minus_);
  nudge.set(x);
  base_ = base;
  epsilon_ = epsilon;
  magnitude_ = 0;
  for (double v : base) magnitude_ = std::max(magnitude_, std::abs(v));
}

double NumericColumn::derivative(std::size_t o) const {
  const double coarse = (plus_[o] - minus_[o]) / (2 * full_), fine = (half_plus_[o] - half_minus_[o]) / (2 * half_);
  return (4 * fine - coarse) / 3;
}

double NumericColumn::error(std::size_t o) const {
  const double coarse = (plus_[o] - minus_[o]) / (2 * full_), fine = (half_plus_[o] - half_minus_[o]) / (2 * half_);
  const double value = std::max({std::abs(plus_[o]), std::abs(minus_[o]), 1e-2 * magnitude_});
  return std::abs(fine - coarse) / 3 + roundings * epsilon_ * value / half_;
}

Verdict judge(Nudge& nudge, const Evaluate& evaluate, const Values& base, double step, double epsilon, std::size_t output, double analytic,
              double& numeric, double& error) {
  NumericColumn column;
  int one_sided = 0, rungs = 0;
  Verdict verdict = Verdict::wrong;
  for (double h = step; rungs < 4; h /= 16, ++rungs) {
    column.measure(nudge, evaluate, base, h, epsilon);
    const double d = column.derivative(output), e = column.error(output), left = column.from_left(output), right = column.from_right(output);
    if (std::isnan(d)) return numeric = d, Verdict::nan;
    if (rungs == 0 || e < error) numeric = d, error = e;
    if (std::abs(analytic - d) <= e && e < 1e-3 * std::max(std::abs(analytic), std::abs(d))) {
      numeric = d, error = e;
      return Verdict::ok;  // what looked wrong was a large third derivative, or a kink that a finer step no longer meets
    }
    // Derivatives from both sides draw together as h shrinks, except at a kink.
    const double bound = 8 * roundings * epsilon * std::max(std::abs(base[output]), std::abs(d) * h) / h;
    if (std::abs(left - right) > bound + 0.01 * (std::abs(left) + std::abs(right))) ++one_sided;
  }
  if (one_sided == rungs) verdict = Verdict::kink;
  return verdict;
}

}  // namespace heed::detail
