#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../tensor/tensor.h"

namespace heed {

/// Tensors with the names that reports show, in order: a module's parameters, the inputs of a gradient check.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

}  // namespace heed
