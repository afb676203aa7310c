#include "gemm.h"

#include <algorithm>
#include <type_traits>

#include "../parallel.h"
#include "onednn.h"
#include "parallel.h"

namespace heed::kernels {
namespace {

/// Multiplications from which on oneDNN is the faster one. Measured: up to 128 x 128 x 128 heed's tiles are as fast or faster.
constexpr Index onednn_work = 128 * 128 * 128 + 1;

/// oneDNN makes a program for every shape, which takes as long as 20 million multiplications. Sizes that grow token by token would pay that at every
/// step, so only round numbers are brought to it; and what it computes depends on the number of threads.
bool suits_onednn(Index m, Index n, Index k) {
  return m * n * k >= onednn_work && m % 8 == 0 && n % 8 == 0 && std::min(m, n) >= 16 && !detail::is_deterministic() && onednn::available();
}

}  // namespace

template <class T>
void gemm(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into into) {
  if constexpr (std::is_same_v<T, float>) {
    if (suits_onednn(m, n, k) && onednn::gemm_batched(1, m, n, k, a, 0, b, 0, c, ldc, into)) return;
  }
  portable::gemm(m, n, k, a, b, c, ldc, into);
}
template void gemm(Index, Index, Index, Matrix<float>, Matrix<float>, float*, Index, Into);
template void gemm(Index, Index, Index, Matrix<double>, Matrix<double>, double*, Index, Into);

template <class T>
void gemm_bias(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, const T* bias, T* c, Index ldc) {
  if constexpr (std::is_same_v<T, float>) {
    if (suits_onednn(m, n, k) && onednn::gemm_batched(1, m, n, k, a, 0, b, 0, c, ldc, Into::overwrite, bias)) return;
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
    if (suits_onednn(m, n, k) && onednn::gemm_batched(batch, m, n, k, a, a_batch_stride, b, b_batch_stride, c, n, Into::overwrite)) return;
  }
  portable::gemm_batched(batch, m, n, k, a, a_batch_stride, b, b_batch_stride, c);
}
template void gemm_batched(Index, Index, Index, Index, Matrix<float>, Index, Matrix<float>, Index, float*);
template void gemm_batched(Index, Index, Index, Index, Matrix<double>, Index, Matrix<double>, Index, double*);

}  // namespace heed::kernels
