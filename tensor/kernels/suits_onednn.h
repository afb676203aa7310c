#pragma once

#include "../dtype.h"

// Which f32 work is brought to oneDNN. The thread's Backend decides; for Backend::automatic, what was measured. What oneDNN then refuses
// (onednn.h) is the caller's own to do.

namespace heed::kernels {

/// A product of m x k and k x n matrices.
bool product_suits_onednn(Index m, Index n, Index k);
/// Softmax over rows, and its gradient.
bool softmax_suits_onednn();

}  // namespace heed::kernels
