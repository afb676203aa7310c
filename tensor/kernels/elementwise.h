#pragma once

#include "../layout.h"

// Element by element over strided inputs into row-major outputs. Shapes are already broadcast: all operands have `shape`, and repeat
// elements with strides of 0. Sizes may be 0. T is float or double; Index too where noted. An output may be one of the inputs
// when that input is row-major.

namespace heed::kernels {

/// An operand: first element and strides (in elements) over the common shape.
template <class T>
struct Strided {
  const T* data;
  Dims strides;
};

/// The bells are what the second derivatives of activations are made of: sech x, e^(-x^2/4), and sech(w/2) / 2 with the w of gelu_tanh = x
/// sigmoid(w).
enum class Unary {
  neg,
  exp,
  log,
  log1p,
  sqrt,
  rsqrt,
  square,
  abs,
  sign,
  tanh,
  sigmoid,
  relu,
  silu,
  gelu_erf,
  gelu_tanh,
  sech,
  gelu_erf_bell,
  gelu_tanh_bell
};
/// Index: neg, abs, sign, square, relu.
template <class T>
void unary(Unary, T* out, Strided<T> x, const Dims& shape);

/// pow is within 1 unit of the last place of the C library's, special values included; the numbers 2, 3, 1, 0.5, 0 and -1 as exponents cost
/// what they look like. maximum and minimum hand on NaN.
/// pow_slope is b a^(b-1), its derivative in a, and 0 where b is 0.
/// drop is a * b, but 0 wherever b is: also for an infinity and NaN.
/// The last ones are y'(a) * b: what the backward of those functions needs, in one pass; those of relu and abs are 0 where y' is, whatever b is.
enum class Binary {
  add,
  sub,
  mul,
  div,
  pow,
  pow_slope,
  maximum,
  minimum,
  drop,
  relu_backward,
  abs_backward,
  tanh_backward,
  sigmoid_backward,
  silu_backward,
  gelu_erf_backward,
  gelu_tanh_backward
};
/// Index: add, sub, mul, maximum, minimum.
template <class T>
void binary(Binary, T* out, Strided<T> a, Strided<T> b, const Dims& shape);

enum class Compare { eq, ne, lt, le, gt, ge };
/// T also Index and bool.
template <class T>
void compare(Compare, bool* out, Strided<T> a, Strided<T> b, const Dims& shape);

enum class Logical { all_of, any_of };  // a & b, a | b
void logical(Logical, bool* out, Strided<bool> a, Strided<bool> b, const Dims& shape);
void logical_not(bool* out, Strided<bool> x, const Dims& shape);

template <class T>
void isnan(bool* out, Strided<T> x, const Dims& shape);
template <class T>
void isfinite(bool* out, Strided<T> x, const Dims& shape);

/// cond ? a : b. T: every element type.
template <class T>
void where(T* out, Strided<bool> cond, Strided<T> a, Strided<T> b, const Dims& shape);

/// Copies between strided operands, converting the element type: float to Index truncates, takes the nearest Index for what is out of range
/// and 0 for NaN; to bool is != 0. From and To: every element type. Row-major to row-major is a memcpy.
template <class To, class From>
void copy(To* out, const Dims& out_strides, Strided<From> x, const Dims& shape);

/// acc += x, acc row-major.
template <class T>
void accumulate(T* acc, Strided<T> x, const Dims& shape);

template <class T>
void fill(T* out, T value, Index n);

}  // namespace heed::kernels
