#pragma once

#include <string>

#include "gemm.h"

// What heed uses of oneDNN. onednn.cpp is the only file that includes a oneDNN header. Every function returns false, with nothing written, for work
// that it does not take, and for all work where `available()` is false: the caller's own kernel then does it. No exception of oneDNN gets out.

namespace heed::kernels::onednn {

/// Whether oneDNN is built in and heed decides how many threads it uses. False in a forked child of a process that had used it.
bool available();
/// "2.6.3", or empty without oneDNN.
std::string version();

/// As gemm_batched, with `ldc` elements between the rows of all results. Takes operands whose rows or columns are dense, of any strides otherwise;
/// not repeated ones (stride 0), empty ones, or a result that overlaps an operand. `bias` (n), where there is one, is added to every row.
bool gemm_batched(Index batch, Index m, Index n, Index k, Matrix<float> a, Index a_batch_stride, Matrix<float> b, Index b_batch_stride, float* c,
                  Index ldc, Into, const float* bias = nullptr);
/// As softmax and softmax_backward. Takes rows without NaN and +inf that have an element above -inf; dx may be dy.
bool softmax(float* y, const float* x, Index rows, Index columns);
bool softmax_backward(float* dx, const float* y, const float* dy, Index rows, Index columns);

/// The name of the implementation that oneDNN chose for the call that came last in this thread; never that of a reference kernel, which are slow and
/// not taken. Empty before the first.
std::string last_implementation();

/// Of this thread's cache of ready primitives, which keeps the `limit` used last.
struct CacheCounters {
  std::int64_t hits = 0, misses = 0, size = 0, limit = 0;
};
CacheCounters cache_counters();

}  // namespace heed::kernels::onednn
