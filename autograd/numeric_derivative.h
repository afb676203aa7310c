#pragma once

// Private to gradient checks: derivatives by differences, each with an estimate of its own error.

#include <functional>
#include <vector>

#include "../tensor/tensor.h"

namespace heed::detail {

/// Moves one element of a tensor and puts the old bits back when it goes out of scope.
class Nudge {
 public:
  Nudge(Tensor t, Index element);
  ~Nudge() { set_bits(); }
  Nudge(const Nudge&) = delete;
  Nudge& operator=(const Nudge&) = delete;

  double value() const { return original_; }
  /// Stores `x` and returns what the element's dtype made of it.
  double set(double x);

 private:
  void set_bits();
  Tensor tensor_;
  Index offset_;
  double original_;
};

/// All elements of a function's outputs, one after another.
using Values = std::vector<double>;
using Evaluate = std::function<void(Values&)>;

/// d values / d (one input element).
class NumericColumn {
 public:
  /// Central differences of `evaluate` at steps h and h/2 around the element's value.
  void measure(Nudge&, const Evaluate&, const Values& base, double step, double epsilon);

  /// Extrapolated to step 0, error h^4.
  double derivative(std::size_t output) const;
  /// Of `derivative`: what the two steps disagree by, plus the rounding of the values.
  double error(std::size_t output) const;
  double from_left(std::size_t output) const { return (base_[output] - half_minus_[output]) / half_; }
  double from_right(std::size_t output) const { return (half_plus_[output] - base_[output]) / half_; }

 private:
  Values plus_, minus_, half_plus_, half_minus_, base_;
  double full_ = 0, half_ = 0, epsilon_ = 0, magnitude_ = 0;
};

/// What finer and finer steps say of an element whose analytic derivative differs from the column's.
enum class Verdict { ok, wrong, kink, nan };
Verdict judge(Nudge&, const Evaluate&, const Values& base, double step, double epsilon, std::size_t output, double analytic, double& numeric,
              double& error);

/// A step for elements of `t`: a fraction of their size, so that inputs of any scale are checked alike.
double step_for(double value, double typical, double epsilon);

}  // namespace heed::detail
