// Products with a vector or with very few of them. They are bound by reading the matrix, so it is read once and in the order in which it lies.
// Compiled once for every SIMD target.

#if defined(HEED_GEMM_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GEMM_VECTOR_INL_H_
#undef HEED_GEMM_VECTOR_INL_H_
#else
#define HEED_GEMM_VECTOR_INL_H_
#endif

#include "gemm_jobs.h"
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

/// c += a B with m = 1 and B and c in rows.
template <class T>
void add_rows(const Few<T>& x) {
  constexpr Index at_once = 8;
  constexpr Index strip = 8192 / static_cast<Index>(sizeof(T));  // c stays in the first cache
  for (Index j = 0; j < x.n; j += strip) {
    const Index width = std::min(strip, x.n - j), row = x.b.row_stride;
    const T* b = x.b.data + j;
    Index p = 0;
    for (; p + at_once <= x.k; p += at_once) add_rows<T, at_once>(width, x.a.data + p, b + p * row, row, x.c + j);
    for (; p < x.k; ++p) add_rows<T, 1>(width, x.a.data + p, b + p * row, row, x.c + j);
  }
}

/// c_ij = a_i . b_j for `rows` rows of A and `columns` columns of B, in which the elements are neighbors.
/// Each is summed in the same order, however many go together.
template <class T, int rows, int columns>
HWY_INLINE void dots(const Few<T>& x, const T* a, const T* b, T* c) {
  Vector<T> sum[rows][columns];
  unrolled<rows>([&](auto i) HWY_ATTR { unrolled<columns>([&](auto j) HWY_ATTR { sum[i][j] = hn::Zero(Simd<T>()); }); });
  const auto add_products = [&](Index p, const auto& some) HWY_ATTR {
    Vector<T> y[columns];
    unrolled<columns>([&](auto j) HWY_ATTR { y[j] = some.load(b + j * x.b.col_stride + p); });
    unrolled<rows>([&](auto i) HWY_ATTR {
      const Vector<T> row = some.load(a + i * x.a.row_stride + p);
      unrolled<columns>([&](auto j) HWY_ATTR { sum[i][j] = hn::MulAdd(row, y[j], sum[i][j]); });
    });
  };
  Index p = 0;
  for (; p + lanes<T> <= x.k; p += lanes<T>) add_products(p, Lanes<T, false>(lanes<T>));
  if (p < x.k) add_products(p, Lanes<T, true>(x.k - p));
  unrolled<rows>([&](auto i) HWY_ATTR {
    unrolled<columns>([&](auto j) HWY_ATTR {
      const T dot = hn::GetLane(hn::SumOfLanes(Simd<T>(), sum[i][j]));
      T& to = c[i * x.c_row + j * x.c_col];
      to = x.add ? to + dot : dot;
    });
  });
}

/// All columns for `rows` rows.
template <class T, int rows>
void dots_of_rows(const Few<T>& x, const T* a, Index columns, const T* b, T* c) {
  constexpr int at_once = rows == 1 ? 8 : 4;  // enough sums to have one ready for every multiplication
  Index j = 0;
  for (; j + at_once <= columns; j += at_once) dots<T, rows, at_once>(x, a, b + j * x.b.col_stride, c + j * x.c_col);
  for (; j < columns; ++j) dots<T, rows, 1>(x, a, b + j * x.b.col_stride, c + j * x.c_col);
}

/// Few rows, many columns.
template <class T>
void multiply_dots(const Few<T>& x) {
  constexpr Index strip = 4;  // these columns stay in the first cache while the rows pass
  const Index step = x.m <= strip ? x.n : strip;
  for (Index j = 0; j < x.n; j += step) {
    const Index columns = std::min(step, x.n - j);
    for (Index i = 0; i < x.m; i += 4) {
      const T* a = x.a.data + i * x.a.row_stride;
      const T* b = x.b.data + j * x.b.col_stride;
      T* c = x.c + i * x.c_row + j * x.c_col;
      switch (std::min<Index>(4, x.m - i)) {
        case 1: dots_of_rows<T, 1>(x, a, columns, b, c); break;
        case 2: dots_of_rows<T, 2>(x, a, columns, b, c); break;
        case 3: dots_of_rows<T, 3>(x, a, columns, b, c); break;
        default: dots_of_rows<T, 4>(x, a, columns, b, c);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#endif
