#pragma once

#include "../tensor/tensor.h"

namespace heed::nn {

/// How projections of attention begin.
enum class Init {
  xavier,  ///< uniform in +-sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, 2010. Trains
  lesson,  ///< standard normal, as attention is first written by hand; scores grow with d_model and the softmax saturates
};

}  // namespace heed::nn

namespace heed::detail {

// Parameters: f32 leaves that require a gradient. ShapeError "op: ..." for negative or overflowing sizes.

Tensor uniform_parameter(const OpName& op, const Dims& shape, double bound);
Tensor normal_parameter(const OpName& op, const Dims& shape, double deviation = 1);
Tensor constant_parameter(const OpName& op, const Dims& shape, double value);
/// 1 / sqrt(n), and 0 for n = 0.
double inverse_sqrt(Index n);

}  // namespace heed::detail
