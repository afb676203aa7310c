// A row vector times a matrix. Bound by reading the matrix once, so it is read in the order in which it lies. Compiled once for every SIMD target.

#if defined(HEED_GEMM_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GEMM_VECTOR_INL_H_
#undef HEED_GEMM_VECTOR_INL_H_
#else
#define HEED_GEMM_VECTOR_INL_H_
#endif

#include "gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {

/// c_j += sum_p a_p b_pj over `rows` rows of B for one vector of columns.
template <class T, int rows, bool partial>
HWY_INLINE void add_rows(const T* a, const T* b, Index b_row, T* c, const Lanes<T, partial>& some) {
  Vector<T> sum = some.load(c);
  for (int p = 0; p < rows; ++p) sum = hn::MulAdd(hn::Set(Simd<T>(), a[p]), some.load(b + p * b_row), sum);
  some.store(sum, c);
}

/// As add_rows for all n columns, whose elements are neighbors.
template <class T, int rows>
HWY_INLINE void add_rows(Index n, const T* a, const T* b, Index b_row, T* c) {
  Index j = 0;
  for (; j + lanes<T> <= n; j += lanes<T>) add_rows<T, rows>(a, b + j, b_row, c + j, Lanes<T, false>(lanes<T>));
  if (j < n) add_rows<T, rows>(a, b + j, b_row, c + j, Lanes<T, true>(n - j));
}

/// c += a B with B in rows.
template <class T>
void vector_times_rows(Index n, Index k, const T* a, const T* b, Index b_row, T* c) {
  constexpr Index at_once = 8;
  constexpr Index strip = 8192 / static_cast<Index>(sizeof(T));  // c stays in the first cache
  for (Index j = 0; j < n; j += strip) {
    const Index width = std::min(strip, n - j);
    Index p = 0;
    for (; p + at_once <= k; p += at_once) add_rows<T, at_once>(width, a + p, b + p * b_row + j, b_row, c + j);
    for (; p < k; ++p) add_rows<T, 1>(width, a + p, b + p * b_row + j, b_row, c + j);
  }
}

/// c_j = a . b_j for `columns` columns of B, in which the elements are neighbors. Each is summed in the same order, however many go together.
template <class T, int columns>
HWY_INLINE void dot_columns(Index k, const T* a, const T* b, Index b_col, T* c, Index c_stride, bool add) {
  constexpr int parts = 2;
  Vector<T> sum[columns][parts];
  for (int j = 0; j < columns; ++j)
    for (int s = 0; s < parts; ++s) sum[j][s] = hn::Zero(Simd<T>());
  Index p = 0;
  for (; p + parts * lanes<T> <= k; p += parts * lanes<T>)
    for (int s = 0; s < parts; ++s) {
      const Index at = p + s * lanes<T>;
      const Vector<T> x = hn::LoadU(Simd<T>(), a + at);
      for (int j = 0; j < columns; ++j) sum[j][s] = hn::MulAdd(x, hn::LoadU(Simd<T>(), b + j * b_col + at), sum[j][s]);
    }
  for (; p < k; p += lanes<T>) {
    const Lanes<T, true> rest(std::min(lanes<T>, k - p));
    const Vector<T> x = rest.load(a + p);
    for (int j = 0; j < columns; ++j) sum[j][0] = hn::MulAdd(x, rest.load(b + j * b_col + p), sum[j][0]);
  }
  for (int j = 0; j < columns; ++j) {
    const T dot = hn::GetLane(hn::SumOfLanes(Simd<T>(), hn::Add(sum[j][0], sum[j][1])));
    c[j * c_stride] = add ? c[j * c_stride] + dot : dot;
  }
}

/// c = a B or c += a B with B in columns.
template <class T>
void vector_times_columns(Index n, Index k, const T* a, const T* b, Index b_col, T* c, Index c_stride, bool add) {
  Index j = 0;
  for (; j + 4 <= n; j += 4) dot_columns<T, 4>(k, a, b + j * b_col, b_col, c + j * c_stride, c_stride, add);
  for (; j < n; ++j) dot_columns<T, 1>(k, a, b + j * b_col, b_col, c + j * c_stride, c_stride, add);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#endif
