#include "gemm.h"

#include <algorithm>
#include <type_traits>

#include "onednn.h"
#include "parallel.h"
#include "suits_onednn.h"

namespace heed::kernels {

template <class T>
void gemm(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into into) {
  if constexpr (std::is_same_v<T, float>) {
    if (product_suits_onednn(m, n, k) && onednn::gemm_batched(1, m, n, k, a, 0, b, 0, c, ldc, into)) return;
  }
  portable::gemm(m, n, k, a, b, c, ldc, into);
}
template void gemm(Index, Index, Index, Matrix<float>, Matrix<float>, float*, Index, Into);
template void gemm(Index, Index, Index, Matrix<double>, Matrix<double>, double*, Index, Into);

template <class T>
void gemm_bias(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, const T* bias, T* c, Index ldc) {
  if constexpr (std::is_same_v<T, float>) {
    if (product_suits_onednn(m, n, k) && onednn::gemm_batched(1, m, n, k, a, 0, b, 0, c, ldc, Into::overwrite, bias)) return;
  }
  parallel_for(m, std::max<Index>(1, 32768 / std::max<Index>(1, n)), [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) std::copy_n(bias, n, c + i * ldc);
  });
  portable::gemm(m, n, k, a, b, c, ldc, Into::accumulate);
}
template void gemm_bias(Index, Index, Index, Matrix<float>, Matrix<float>, const float*, float*, Index);
template void gemm_bias(Index, Index, Index, Matrix<double>, Matrix<double>, const double*, double*, Index);

template <class T>
void gemm_batched(Index batch, Index m, Index n, Index k, Matrix<T> a, Index a_batch_stride, Matrix<T> b, Index b_batch_stride, T* c) {
  // The rows of all products under each other, where one B serves them all.
  if (batch == 1 || (b_batch_stride == 0 && a_batch_stride == m * a.row_stride)) return gemm(batch * m, n, k, a, b, c, n, Into::overwrite);
  if constexpr (std::is_same_v<T, float>) {
    if (product_suits_onednn(m, n, k) && onednn::gemm_batched(batch, m, n, k, a, a_batch_stride, b, b_batch_stride, c, n, Into::overwrite)) return;
  }
  portable::gemm_batched(batch, m, n, k, a, a_batch_stride, b, b_batch_stride, c);
}
template void gemm_batched(Index, Index, Index, Index, Matrix<float>, Index, Matrix<float>, Index, float*);
template void gemm_batched(Index, Index, Index, Index, Matrix<double>, Index, Matrix<double>, Index, double*);

}  // namespace heed::kernels
