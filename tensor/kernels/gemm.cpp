#include "gemm.h"

#include "parallel.h"

namespace heed::kernels {

template <class T>
void gemm(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into into) {
  portable::gemm(m, n, k, a, b, c, ldc, into);
}
template void gemm(Index, Index, Index, Matrix<float>, Matrix<float>, float*, Index, Into);
template void gemm(Index, Index, Index, Matrix<double>, Matrix<double>, double*, Index, Into);

template <class T>
void gemm_batched(Index batch, Index m, Index n, Index k, Matrix<T> a, Index a_batch_stride, Matrix<T> b, Index b_batch_stride, T* c) {
  for (Index p = 0; p < batch; ++p) {
    gemm(m, n, k, {a.data + p * a_batch_stride, a.row_stride, a.col_stride}, {b.data + p * b_batch_stride, b.row_stride, b.col_stride}, c + p * m * n,
         n, Into::overwrite);
  }
}
template void gemm_batched(Index, Index, Index, Index, Matrix<float>, Index, Matrix<float>, Index, float*);
template void gemm_batched(Index, Index, Index, Index, Matrix<double>, Index, Matrix<double>, Index, double*);

}  // namespace heed::kernels
