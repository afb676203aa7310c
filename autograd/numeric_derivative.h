#pragma once

// Private to gradient checks: derivatives by differences, each with an estimate of its own error.

#include <functional>
#include <vector>

#include "../tensor/tensor.h"

namespace heed::detail {

/// A line through an input along which a function is looked at. The position is 0 at first, and again when the line goes out of scope.
class Line {
 public:
  virtual ~Line() = default;
  /// Goes to position t, or as near as the dtype can, and returns where that is.
  virtual double move(double t) = 0;
};

/// Moves one element of a tensor in place; afterwards its bits, and its version, are as before.
class ElementLine final : public Line {
 public:
  ElementLine(const Tensor& t, Index element);
  ~ElementLine() override;
  ElementLine(const ElementLine&) = delete;
  ElementLine& operator=(const ElementLine&) = delete;

  double start() const { return start_; }
  double move(double t) override;

 private:
  double store(double x);

  Tensor tensor_;
  Index offset_;
  double start_;
  std::uint32_t version_;
};

/// Moves a whole tensor along a direction of the same shape, in place; afterwards its bits, and its version, are as before.
class DirectionLine final : public Line {
 public:
  DirectionLine(const Tensor& t, const Tensor& direction);
  ~DirectionLine() override;
  DirectionLine(const DirectionLine&) = delete;
  DirectionLine& operator=(const DirectionLine&) = delete;

  double move(double t) override;

 private:
  void write(const Tensor& value);

  Tensor tensor_, direction_, kept_;
  std::uint32_t version_;
};

/// All that a function gives, one number after another.
using Values = std::vector<double>;
using Evaluate = std::function<void(Values&)>;

/// What a function gives where no line has moved, and how far each value jumps when the inputs move by their last bits: its rounding, which for sums
/// that cancel is far above the last place of the value itself.
struct Baseline {
  Values values, noise;
  double epsilon = 0;
  double jitter = 0;  ///< by which two evaluations at one place may differ
  /// What rounding may do to value i when it is about that large.
  double rounding(std::size_t i, double size) const;
};
/// `shake(t)` moves the inputs by about t of their size, in random directions; t = 0 puts them back.
Baseline baseline(const Evaluate&, double epsilon, const std::function<void(double t)>& shake);

/// d values / dt at position 0 of a line.
class NumericColumn {
 public:
  /// Central differences at steps h and h/2. The baseline outlives the column.
  void measure(Line&, const Evaluate&, const Baseline&, double step);

  /// Extrapolated to step 0: error h^4.
  double derivative(std::size_t value) const;
  /// Of `derivative`: what the two steps disagree by, plus the rounding of the values.
  double error(std::size_t value) const;
  /// By how much the derivatives from left and right differ, beyond rounding: shrinks with the step, except at a kink.
  double one_sided_gap(std::size_t value) const;
  /// The part of `error` that grows as the step shrinks.
  double rounding(std::size_t value) const;
  /// By how much the value moves over the shorter step, both ways, and that step.
  double moved(std::size_t value) const;
  double half_step() const { return half_; }

 private:
  const Baseline* base_ = nullptr;
  Values plus_, minus_, half_plus_, half_minus_;
  double full_ = 0, half_ = 0;
};

/// d values / dt at position 0 of a line by Ridders' method (Adv. Eng. Software 4 (1982) 75): central differences at steps from `widest` down, each
/// half of the one before, extrapolated to step 0 in all orders; the entry of the table that its neighbors confirm best is believed. Wide steps drown
/// rounding, and the orders make up for their truncation: where NumericColumn sees nothing this may, for seven times the evaluations.
class WideColumn {
 public:
  void measure(Line&, const Evaluate&, const Baseline&, double widest);
  struct Estimate {
    double derivative, error;
  };
  Estimate estimate(std::size_t value) const;

 private:
  const Baseline* base_ = nullptr;
  std::vector<Values> plus_, minus_;  // by step
  std::vector<double> steps_;
  Values leaps_;  // by which a value moves that narrow steps do not move and wider ones do; 0 for others
};

enum class Verdict { ok, wrong, kink, nan, undecided };
const char* text(Verdict);

/// An estimated error above this part of a derivative leaves open what the derivative is.
constexpr double blinding = 0.1;

struct Judgment {
  Verdict verdict;
  double numeric, error;
};
/// What finer and finer steps say of a value whose analytic derivative lies outside the error of the first: down to steps at which rounding hides the
/// derivative, so that a kink nearby is left behind. Undecided where the value moves by leaps that are large enough for the analytic derivative.
Judgment judge(Line&, const Evaluate&, const Baseline&, double step, std::size_t value, double analytic);

/// For an element of this size in a tensor whose elements are typically that large, what counts as a large step.
double size_for(double element, double typical);
/// A step for an element of this size in a tensor whose elements are typically that large: a fraction of either, so that inputs of any scale are
/// checked alike.
double step_for(double element, double typical, double epsilon);

/// Root mean square of the elements, 0 of nothing.
double typical_size(const Tensor&);

}  // namespace heed::detail
