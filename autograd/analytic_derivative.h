#pragma once

// Private to gradient checks: the derivatives that backward gives.

#include <functional>
#include <random>
#include <vector>

#include "../tensor/tensor.h"
#include "numeric_derivative.h"

namespace heed::detail {

/// The gradients of outputs, which keep their graph, by leaves.
class AnalyticDerivative {
 public:
  /// For each cotangent and leaf, the gradient of their product with the outputs; zeros where there is none.
  using Gradients = std::vector<std::vector<Values>>;

  AnalyticDerivative(std::vector<Tensor> outputs, std::vector<Tensor> leaves) : outputs_(std::move(outputs)), leaves_(std::move(leaves)) {}
  AnalyticDerivative(const AnalyticDerivative&) = delete;
  AnalyticDerivative& operator=(const AnalyticDerivative&) = delete;

  /// For each leaf: rows are output elements, columns its own. A row is one backward of one element times a random factor, which is divided out
  /// again: a backward that is right only for a gradient of one shows.
  const std::vector<Values>& jacobian(std::mt19937_64& random);
  /// Cotangents have a number for each output element.
  const Gradients& along(const std::vector<Values>& cotangents);
  /// Whether what was asked for last comes out again, up to `tolerance`.
  bool repeats(double tolerance) const;

 private:
  std::vector<Values> fresh_jacobian(std::mt19937_64& random) const;
  Gradients fresh_along(const std::vector<Values>& cotangents) const;

  std::vector<Tensor> outputs_, leaves_;
  Gradients last_;
  std::function<Gradients()> anew_;
};

/// Whether two runs gave the same: NaN in the same places, and elsewhere numbers that differ by no more than `tolerance`.
bool same_values(const Values& a, const Values& b, double tolerance);

}  // namespace heed::detail
