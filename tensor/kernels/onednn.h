#pragma once

#include <string>

#include "gemm.h"

// What heed uses of oneDNN. onednn.cpp is the only file that includes a oneDNN header; built without it, `available()` is false and nothing here may
// be called. Every function returns false, with nothing written, for work that it does not take: the caller's own kernel then does it.

namespace heed::kernels::onednn {

bool available();
/// "2.6.3", or empty.
std::string version();

/// As gemm_batched. Takes row- or column-dense operands of sizes above zero.
bool gemm_batched(Index batch, Index m, Index n, Index k, Matrix<float> a, Index a_batch_stride, Matrix<float> b, Index b_batch_stride, float* c,
                  Index ldc, Into);
/// As softmax_backward and softmax, for sizes above zero; the rows must have an element above -inf.
bool softmax(float* y, const float* x, Index rows, Index columns);
bool softmax_backward(float* dx, const float* y, const float* dy, Index rows, Index columns);

/// The name of the implementation that oneDNN chose for the call that came last in this thread: tests refuse "ref".
std::string last_implementation();
struct CacheCounters {
  std::int64_t hits = 0, misses = 0, size = 0;
};
/// Of this thread's cache of ready primitives.
CacheCounters cache_counters();

}  // namespace heed::kernels::onednn
