#pragma once

#include <algorithm>
#include <cmath>

#include "../dtype.h"

// Private: layer norm for rows whose squares, or products of gradient and weight, leave the range of T. Slow, and seldom called. The arithmetic is
// that of layer_norm.h in f64, of numbers that were scaled by powers of two such that the largest is near 1.

namespace heed::kernels {

/// Which rows the fast kernels are right for.
template <class T>
struct Near {
  /// Squares below the normal numbers do not count in variance + eps, and none has overflowed.
  static bool variance(double with_eps) { return with_eps >= (f32 ? 0x1p-100 : 0x1p-960) && std::isfinite(with_eps); }
  /// The row was of that kind, or x - mean and the product with rstd are right all the same.
  static bool rstd(T value) { return value >= (f32 ? T(0x1p-70) : T(0x1p-600)) && value <= (f32 ? T(0x1p60) : T(0x1p600)); }
  /// The means of g and g xh, g = dy weight: no product has overflowed, no difference will, and products below the normal numbers do not count.
  static bool gradient(double mean, double dot) {
    const double size = std::abs(mean) + std::abs(dot);
    return size >= (f32 ? 0x1p-90 : 0x1p-900) && size <= (f32 ? 0x1p80 : 0x1p900);
  }

 private:
  static constexpr bool f32 = sizeof(T) == 4;
};

template <class T>
void far_row(T* y, T* mean, T* rstd, const T* x, const T* weight, const T* bias, double eps, Index n);
/// Writes dx and adds to dweight and dbias; any may be null.
template <class T>
void far_row_backward(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* weight, double eps, Index n);
/// Replaces what is not finite in dweight and dbias, null or sums over all rows, by sums that do not overflow on the way. `sums` is for 2 n elements.
template <class T>
void far_parameters(T* dweight, T* dbias, const T* dy, const T* x, double eps, Index rows, Index n, double* sums);

}  // namespace heed::kernels
