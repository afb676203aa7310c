#pragma once

#include <cstddef>
#include <string>

#include "../tensor/tensor.h"

namespace heed {

/// The graph behind a tensor in the DOT language of Graphviz: ops with shapes and saved bytes, named leaves; arrows run from inputs to results.
std::string to_dot(const Tensor&);

/// Bytes of distinct storage that the graph behind a tensor keeps for backward, leaves left out.
std::size_t saved_bytes(const Tensor&);

}  // namespace heed
