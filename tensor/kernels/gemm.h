#pragma once

#include "../dtype.h"

// Matrix products. T is float or double. For f32, oneDNN serves the sizes where it is the faster one (onednn.h).

namespace heed::kernels {

/// A matrix in place: element (i, j) at data[i * row_stride + j * col_stride]. Any strides, 0 included: transposing costs nothing.
template <class T>
struct Matrix {
  const T* data;
  Index row_stride, col_stride;
};

/// c = a b, or c += a b with Into::accumulate: a is m x k, b is k x n, c is row-major m x n with `ldc` elements between rows and overlaps neither.
/// Any size may be 0; k = 0 gives zeros. NaN and infinities go through as IEEE says: nothing is skipped for being 0.
enum class Into { overwrite, accumulate };
template <class T>
void gemm(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into = Into::overwrite);

/// c = a b, with `bias` (n) added to every row.
template <class T>
void gemm_bias(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, const T* bias, T* c, Index ldc);

/// `batch` products of the same sizes; operand p of the batch begins at data + p * batch_stride (0 repeats it). Row-major results lie back to back.
/// Parallel over the batch or inside a product, whichever is faster.
template <class T>
void gemm_batched(Index batch, Index m, Index n, Index k, Matrix<T> a, Index a_batch_stride, Matrix<T> b, Index b_batch_stride, T* c);

namespace portable {

/// heed's own kernels, whatever else is there: what serves f64, small sizes and builds without oneDNN, and the opponent in tests and benchmarks.
/// The bits do not depend on the number of threads.
template <class T>
void gemm(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into = Into::overwrite);
template <class T>
void gemm_batched(Index batch, Index m, Index n, Index k, Matrix<T> a, Index a_batch_stride, Matrix<T> b, Index b_batch_stride, T* c);

/// As gemm, on this thread and without allocating: for use inside a parallel region. The bits are those of gemm.
/// `scratch` has gemm_here_scratch elements; the number for the largest m, n and k does for smaller ones.
template <class T>
void gemm_here(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into, T* scratch);
Index gemm_here_scratch(Index m, Index n, Index k);

}  // namespace portable

}  // namespace heed::kernels
