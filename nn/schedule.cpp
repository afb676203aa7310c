#include "schedule.h"

#include <cmath>
#include <numbers>

#include "../tensor/raise.h"

namespace heed::nn {
namespace {

void check_rate(const char* op, const char* what, double rate) {
  if (!(rate >= 0 && std::isfinite(rate))) detail::raise<Error>("{}: {} is negative or not finite: {}", op, what, rate);
}

void check_steps(const char* op, const char* what, Index count, Index least = 0) {
  if (count < least) detail::raise<Error>("{}: {} is below {}: {}", op, what, least, count);
}

/// Each number is a double before anything is added to it: a whole number could overflow.
double ratio(Index a, Index b, double plus) { return (static_cast<double>(a) + plus) / (static_cast<double>(b) + plus); }

double warmup(double peak, Index warmup_steps, Index step) { return peak * ratio(step, warmup_steps, 1); }

/// `shape` falls from 1 to 0 while its argument rises from 0 to 1.
template <class Schedule, class Shape>
double warm_then(const char* op, const Schedule& s, Index step, Shape shape) {
  check_rate(op, "peak", s.peak), check_rate(op, "floor", s.floor);
  check_steps(op, "warmup_steps", s.warmup_steps), check_steps(op, "total_steps", s.total_steps), check_steps(op, "step", step);
  if (step < s.warmup_steps) return warmup(s.peak, s.warmup_steps, step);
  if (step == s.warmup_steps) return s.peak;
  if (step >= s.total_steps) return s.floor;
  return std::lerp(s.floor, s.peak, shape(ratio(step - s.warmup_steps, s.total_steps - s.warmup_steps, 0)));
}

}  // namespace

double WarmupCosine::operator()(Index step) const {
  return warm_then("WarmupCosine", *this, step, [](double t) { return (1 + std::cos(std::numbers::pi * t)) / 2; });
}

double WarmupLinear::operator()(Index step) const {
  return warm_then("WarmupLinear", *this, step, [](double t) { return 1 - t; });
}

double StepDecay::operator()(Index step) const {
  constexpr const char* op = "StepDecay";
  check_rate(op, "peak", peak), check_rate(op, "gamma", gamma);
  check_steps(op, "warmup_steps", warmup_steps), check_steps(op, "step_size", step_size, 1), check_steps(op, "step", step);
  if (warmup_steps >= step_size)
    detail::raise<Error>("{}: no step has the peak: warmup_steps {} is not below step_size {}", op, warmup_steps, step_size);
  if (step < warmup_steps) return warmup(peak, warmup_steps, step);
  const double rate = peak * std::pow(gamma, static_cast<double>(step / step_size));
  if (!std::isfinite(rate)) detail::raise<Error>("{}: the rate of step {} is not finite: peak {}, gamma {}", op, step, peak, gamma);
  return rate;
}

}  // namespace heed::nn
