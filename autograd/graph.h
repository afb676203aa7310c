#pragma once

#include <cstddef>
#include <string>

#include "../tensor/tensor.h"
#include "named_tensors.h"

namespace heed {

/// The graph behind a tensor in the DOT language of Graphviz: ops with shapes and saved bytes, named leaves, and the sums; arrows run from inputs to
/// results. Leaves have their own names (`named`) or those given: `to_dot(loss, nn::named_parameters(model))` shows a whole step.
std::string to_dot(const Tensor&, const NamedTensors& names = {});

/// Bytes of distinct storage that the graph behind a tensor keeps for backward, leaves left out.
std::size_t saved_bytes(const Tensor&);

}  // namespace heed
