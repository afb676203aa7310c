#pragma once

// Private to gradient checks: which op gives another result each time it runs.

#include <functional>
#include <string>
#include <vector>

#include "named_tensors.h"

namespace heed::detail {

/// Runs `run` twice and says which op, or whose backward, is the first to give other results by more than `tolerance` from the same inputs, and where
/// it was called: "node 0, dropout, called at main.cpp:3". Empty when both runs agree, as they may by chance. `run` computes results, and may take
/// gradients of them.
std::string first_difference(const std::function<std::vector<Tensor>()>& run, double tolerance);

}  // namespace heed::detail
