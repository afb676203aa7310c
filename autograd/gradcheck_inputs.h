#pragma once

// Private to gradient checks: what may be checked, and the numbers in tensors.

#include <random>
#include <vector>

#include "gradcheck.h"
#include "numeric_derivative.h"

namespace heed::detail {

/// Throws for inputs that cannot be moved one by one, or have no derivatives.
void require_checkable(const NamedTensors&, const GradcheckOptions&);

/// Gradients are asked for while a check runs.
class RequireGrads {
 public:
  explicit RequireGrads(const NamedTensors& inputs);
  ~RequireGrads();
  RequireGrads(const RequireGrads&) = delete;
  RequireGrads& operator=(const RequireGrads&) = delete;

 private:
  std::vector<Tensor> turned_on_;
};

/// The distance from 1 to the next number.
double epsilon_of(DType);
/// The index of an element in a tensor of that shape.
Dims unravel(Index element, const Dims& shape);
/// The elements of a float tensor, at the end of `all`.
void append(Values& all, const Tensor&);
/// Random numbers from a normal distribution, in the shape and dtype of a tensor.
Tensor normal_like(const Tensor&, std::mt19937_64&);

}  // namespace heed::detail
