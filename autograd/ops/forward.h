#pragma once

// The computing half of elementwise ops: checks, output, kernel; nothing but `drop` is recorded here. Private to autograd/ops/.

#include "../../tensor/kernels/elementwise.h"
#include "../../tensor/raise.h"
#include "../op.h"
#include "../ops.h"

namespace heed::detail {

/// "dtypes differ: f32 and f64; convert one with .to(f64)"
[[noreturn]] void raise_different_dtypes(const OpName&, DType, DType);

inline void require_same_dtype(const OpName& op, const Tensor& a, const Tensor& b) {
  if (a.impl(op).dtype != b.impl(op).dtype) raise_different_dtypes(op, a.dtype(), b.dtype());
}
inline void require_float(const OpName& op, const Tensor& x) {
  if (!is_float(x.impl(op).dtype)) raise<DTypeError>(op, "wants f32 or f64, not {}", x.dtype());
}
inline void require_dtype(const OpName& op, const Tensor& x, DType dtype) {
  if (x.impl(op).dtype != dtype) raise<DTypeError>(op, "wants {}, not {}", dtype, x.dtype());
}

/// A shape with one dim more at the end.
inline Dims with_last(const OpName& op, Dims shape, Index size) {
  if (shape.size() == Dims::max_rank) raise<ShapeError>(op, "a tensor has at most {} dims: shape {}", Dims::max_rank, shape);
  shape.push_back(size);
  return shape;
}

/// The tensor as a kernel operand over a shape that it broadcasts to.
template <class T>
kernels::Strided<T> over(const Tensor& t, const Dims& shape) {
  if (t.shape() == shape) return {t.data<T>(), t.strides()};
  return {t.data<T>(), expand("broadcast", t.ref()->layout, shape).strides};
}

/// A number as a tensor without dims.
Tensor as_tensor(const OpName& op, const Number&, DType);

/// The shape that two operands broadcast to, small enough to allocate.
inline Dims common_shape(const OpName& op, const Tensor& a, const Tensor& b) {
  if (a.shape() == b.shape()) return a.shape();
  const Dims shape = broadcast_shapes(op, a.shape(), b.shape());
  checked_numel(op, shape, size_of(a.dtype()));
  return shape;
}

/// Whether no element is infinite or NaN.
inline bool all_finite(const Tensor& x) { return all(isfinite(x)).item<bool>(); }

/// of(x^2) for a linear `of`; where squares or sums of them overflow on the way to a result that does not, scaled. Not to be recorded.
template <class F>
Tensor of_squares(const Tensor& x, F of) {
  const Tensor y = of(square(x));
  if (all_finite(y)) return y;
  // Where the result is finite, the squares that count are near the top of the range.
  const double down = x.dtype() == f32 ? 0x1p-96 : 0x1p-600, up = 1 / down;
  return where(isfinite(y), y, of(square(x * down)) * up * up);
}

Tensor unary_forward(const OpName& op, kernels::Unary, const Tensor& x);
Tensor binary_forward(const OpName& op, kernels::Binary, const Tensor& a, const Tensor& b);

/// x scale, but 0 wherever the scale is, also for an infinite x, whose product would be NaN. The scale has x's shape and is no input.
Tensor drop(const OpName& op, const Tensor& x, const Tensor& scale);

}  // namespace heed::detail
