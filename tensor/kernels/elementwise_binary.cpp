#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/elementwise_binary.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "elementwise.h"
#include "gelu-inl.h"
#include "math-inl.h"
#include "parallel.h"
#include "partial-inl.h"
#include "walk.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

/// out = f(a, b) over one row; a step of 0 repeats the first element. A function for each op: in one for all, the compiler gives up inlining.
template <class T, class F>
HWY_NOINLINE void map_row(T* out, const T* a, Index step_a, const T* b, Index step_b, Index n, F f) {
  const hn::ScalableTag<T> d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  // A repeated element becomes a vector in memory that is read again and again: one loop serves all cases.
  HWY_ALIGN T wide_a[hn::MaxLanes(d)];
  HWY_ALIGN T wide_b[hn::MaxLanes(d)];
  if (step_a == 0) hn::Store(hn::Set(d, *a), d, wide_a), a = wide_a;
  if (step_b == 0) hn::Store(hn::Set(d, *b), d, wide_b), b = wide_b;
  Index i = 0;
  for (; i + lanes <= n; i += lanes, a += step_a * lanes, b += step_b * lanes) hn::StoreU(f(d, hn::LoadU(d, a), hn::LoadU(d, b)), d, out + i);
  if (i == n) return;
  store_first(f(d, load_first(d, n - i, a), load_first(d, n - i, b)), d, n - i, out + i);
}

/// x^y
struct Power {
  template <class T>
  static HWY_INLINE T of(T x, T y) {
    return std::pow(x, y);
  }
  /// For positive x.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V of(D d, V x, V y) {
    return exp(d, hn::Mul(log(d, x), y));
  }
};

/// y x^(y-1)
struct PowerSlope {
  static HWY_INLINE float of(float x, float y) { return y == 0 ? 0 : static_cast<float>(y * std::pow(static_cast<double>(x), y - 1.0)); }
  static HWY_INLINE double of(double x, double y) {
    if (y == 0) return 0;
    const double lower = y - 1, back = lower - y;
    double power = std::pow(x, lower);
    // What rounding took from y - 1 counts as many times as log x is large.
    if (const double lost = (y - (lower - back)) - (1 + back); std::abs(lost) > 0 && x > 0 && std::isfinite(x)) power *= 1 + lost * std::log(x);
    if (std::isnan(power) || (std::isfinite(power) && std::abs(power) >= std::numeric_limits<double>::min())) return y * power;
    const double half = std::pow(std::abs(x), lower / 2);  // y may bring it back into range
    return std::copysign(y * half * half, std::copysign(y, power) * std::copysign(1.0, y));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V of(D d, V x, V y) {
    return hn::Mul(y, Power::of(d, x, hn::Sub(y, hn::Set(d, hn::TFromD<D>{1}))));
  }
};

/// To f32, infinite where it is too large: Highway's targets without vectors stop at the largest number.
template <class Half, class V>
HWY_INLINE hn::Vec<Half> narrowed(Half half, V x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  const hn::Rebind<double, Half> d;
  HWY_ALIGN double from[hn::MaxLanes(d)];
  HWY_ALIGN float to[hn::MaxLanes(d)];
  hn::Store(x, d, from);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<float>(from[i]);
  return hn::Load(half, to);
#else
  return hn::DemoteTo(half, x);
#endif
}

/// Positive bases and finite exponents in f64, where the error of the logarithm is far below an f32; the rest by the C library.
template <class F>
void pow_row(F f, float* out, const float* x, Index step_x, const float* y, Index step_y, Index n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  HWY_ALIGN float wide_x[hn::MaxLanes(d)];
  HWY_ALIGN float wide_y[hn::MaxLanes(d)];
  if (step_x == 0) hn::Store(hn::Set(half, *x), half, wide_x), x = wide_x;
  if (step_y == 0) hn::Store(hn::Set(half, *y), half, wide_y), y = wide_y;
  const auto infinity = hn::Set(half, std::numeric_limits<float>::infinity());
  for (Index i = 0; i < n; i += lanes, x += step_x * lanes, y += step_y * lanes) {
    const Index count = std::min(lanes, n - i);
    const auto base = load_first(half, count, x), exponent = load_first(half, count, y);
    const auto power = f.of(d, hn::PromoteTo(d, base), hn::PromoteTo(d, exponent));
    const auto ordinary = hn::And(hn::And(hn::Gt(base, hn::Zero(half)), hn::Lt(base, infinity)), hn::Lt(hn::Abs(exponent), infinity));
    const auto rest = hn::AndNot(ordinary, hn::FirstN(half, static_cast<std::size_t>(count)));
    if (hn::AllFalse(half, rest)) {
      store_first(narrowed(half, power), half, count, out + i);
      continue;
    }
    // Through memory of its own, since `out` may be x.
    HWY_ALIGN float bases[hn::MaxLanes(d)];
    HWY_ALIGN float exponents[hn::MaxLanes(d)];
    HWY_ALIGN float powers[hn::MaxLanes(d)];
    hn::Store(base, half, bases);
    hn::Store(exponent, half, exponents);
    hn::Store(narrowed(half, power), half, powers);
    for (Index j = 0; j < lanes; ++j)
      if (!(bases[j] > 0 && bases[j] <= std::numeric_limits<float>::max() && std::abs(exponents[j]) <= std::numeric_limits<float>::max()))
        powers[j] = f.of(bases[j], exponents[j]);
    store_first(hn::Load(half, powers), half, count, out + i);
  }
}

template <class F>
void pow_row(F f, double* out, const double* x, Index step_x, const double* y, Index step_y, Index n) {
  for (Index i = 0; i < n; ++i) out[i] = f.of(x[i * step_x], y[i * step_y]);
}

/// Exponents that people write as numbers.
template <class T>
void pow_by_number(T* out, const T* x, Index step_x, const T* y, Index n) {
  const auto each = [&](auto f) HWY_ATTR { map_row(out, x, step_x, x, step_x, n, f); };
  if (*y == 2) return each([](auto, auto v, auto) HWY_ATTR { return hn::Mul(v, v); });
  if (*y == 1) return each([](auto, auto v, auto) HWY_ATTR { return v; });
  if (*y == 3) return each([](auto, auto v, auto) HWY_ATTR { return hn::Mul(hn::Mul(v, v), v); });
  if (*y == -1) return each([](auto d, auto v, auto) HWY_ATTR { return hn::Div(hn::Set(d, T{1}), v); });
  if (*y == 0) return each([](auto d, auto, auto) HWY_ATTR { return hn::Set(d, T{1}); });
  if (*y == static_cast<T>(0.5))
    return each([](auto d, auto v, auto) HWY_ATTR {
      // Unlike the root, the power of -0 is 0 and that of -inf is inf.
      const auto infinity = hn::Set(d, std::numeric_limits<T>::infinity());
      return hn::IfThenElse(hn::Eq(v, hn::Neg(infinity)), infinity, hn::Sqrt(hn::Add(v, hn::Zero(d))));
    });
  pow_row(Power(), out, x, step_x, y, Index{0}, n);
}
template <class T>
void pow_slope_by_number(T* out, const T* x, Index step_x, const T* y, Index n) {
  const auto each = [&](auto f) HWY_ATTR { map_row(out, x, step_x, x, step_x, n, f); };
  if (*y == 2) return each([](auto, auto v, auto) HWY_ATTR { return hn::Add(v, v); });
  if (*y == 1) return each([](auto d, auto, auto) HWY_ATTR { return hn::Set(d, T{1}); });
  if (*y == 3) return each([](auto d, auto v, auto) HWY_ATTR { return hn::Mul(hn::Mul(hn::Set(d, T{3}), v), v); });
  if (*y == -1) return each([](auto d, auto v, auto) HWY_ATTR { return hn::Div(hn::Div(hn::Set(d, T{-1}), v), v); });
  if (*y == 0) return each([](auto d, auto, auto) HWY_ATTR { return hn::Zero(d); });
  pow_row(PowerSlope(), out, x, step_x, y, Index{0}, n);
}

/// each(f) with the function of an op on vectors. There is none for pow and its slope.
template <class T, class F>
HWY_INLINE void with_function(T, Binary op, F each) {
  switch (op) {
    case Binary::add: return each([](auto, auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
    case Binary::sub: return each([](auto, auto x, auto y) HWY_ATTR { return hn::Sub(x, y); });
    case Binary::mul: return each([](auto, auto x, auto y) HWY_ATTR { return hn::Mul(x, y); });
    case Binary::div: return each([](auto, auto x, auto y) HWY_ATTR { return hn::Div(x, y); });
    case Binary::pow:
    case Binary::pow_slope: return;
    case Binary::maximum: return each([](auto, auto x, auto y) HWY_ATTR { return hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y); });
    case Binary::minimum: return each([](auto, auto x, auto y) HWY_ATTR { return hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y); });
    case Binary::drop: return each([](auto d, auto x, auto y) HWY_ATTR { return hn::IfThenZeroElse(hn::Eq(y, hn::Zero(d)), hn::Mul(x, y)); });
    case Binary::relu_backward: return each([](auto d, auto x, auto g) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), g); });
    case Binary::abs_backward:
      return each([](auto d, auto x, auto g) HWY_ATTR {
        const auto zero = hn::Zero(d), y = hn::IfThenElse(hn::Lt(x, zero), hn::Neg(g), hn::IfThenElseZero(hn::Gt(x, zero), g));
        return hn::IfThenElse(hn::IsNaN(x), x, y);
      });
    case Binary::tanh_backward: return each([](auto d, auto x, auto g) HWY_ATTR { return hn::Mul(tanh_derivative(d, x), g); });
    case Binary::sigmoid_backward: return each([](auto d, auto x, auto g) HWY_ATTR { return hn::Mul(sigmoid_derivative(d, x), g); });
    case Binary::silu_backward: return each([](auto d, auto x, auto g) HWY_ATTR { return hn::Mul(silu_derivative(d, x), g); });
    case Binary::gelu_erf_backward: return each([](auto d, auto x, auto g) HWY_ATTR { return hn::Mul(gelu_erf_derivative(d, x), g); });
    case Binary::gelu_tanh_backward: return each([](auto d, auto x, auto g) HWY_ATTR { return hn::Mul(gelu_tanh_derivative(d, x), g); });
  }
}

/// Whole numbers wrap, so the arithmetic is unsigned.
template <class F>
void map_row(Index* out, const Index* a, Index step_a, const Index* b, Index step_b, Index n, F f) {
  for (Index i = 0; i < n; ++i) out[i] = static_cast<Index>(f(static_cast<std::uint64_t>(a[i * step_a]), static_cast<std::uint64_t>(b[i * step_b])));
}
template <class F>
HWY_INLINE void with_function(Index, Binary op, F each) {
  using U = std::uint64_t;
  switch (op) {
    case Binary::add: return each([](U x, U y) HWY_ATTR { return x + y; });
    case Binary::sub: return each([](U x, U y) HWY_ATTR { return x - y; });
    case Binary::mul: return each([](U x, U y) HWY_ATTR { return x * y; });
    case Binary::maximum: return each([](U x, U y) HWY_ATTR { return static_cast<Index>(x) > static_cast<Index>(y) ? x : y; });
    case Binary::minimum: return each([](U x, U y) HWY_ATTR { return static_cast<Index>(x) < static_cast<Index>(y) ? x : y; });
    default: return;
  }
}

/// One row of n elements.
template <class T>
void binary_row(Binary op, T* out, const T* a, Index step_a, const T* b, Index step_b, Index n) {
  if constexpr (!std::is_same_v<T, Index>) {
    if (op == Binary::pow) return step_b == 0 ? pow_by_number(out, a, step_a, b, n) : pow_row(Power(), out, a, step_a, b, step_b, n);
    if (op == Binary::pow_slope) return step_b == 0 ? pow_slope_by_number(out, a, step_a, b, n) : pow_row(PowerSlope(), out, a, step_a, b, step_b, n);
  }
  with_function(T{}, op, [=](auto f) HWY_ATTR { map_row(out, a, step_a, b, step_b, n, f); });
}

/// Elements [begin, end) of a nest.
template <class T>
void binary_nest(Binary op, T* out, const T* a, const T* b, const Nest<2>& nest, Index begin, Index end) {
  const Index step_a = nest.strides[0].back(), step_b = nest.strides[1].back();
  const auto each_row = [&](auto row) HWY_ATTR {
    Index at = begin;
    for (Rows<2> rows(nest, begin, end); rows; at += rows.count(), rows.next()) row(out + at, a + rows.offset(0), b + rows.offset(1), rows.count());
  };
  if (op == Binary::pow || op == Binary::pow_slope)
    return each_row([=](T* o, const T* x, const T* y, Index n) HWY_ATTR { binary_row(op, o, x, step_a, y, step_b, n); });
  with_function(T{}, op,
                [&](auto f) HWY_ATTR { each_row([=](T* o, const T* x, const T* y, Index n) HWY_ATTR { map_row(o, x, step_a, y, step_b, n, f); }); });
}

void row_f32(Binary op, float* out, const float* a, Index step_a, const float* b, Index step_b, Index n) {
  binary_row(op, out, a, step_a, b, step_b, n);
}
void row_f64(Binary op, double* out, const double* a, Index step_a, const double* b, Index step_b, Index n) {
  binary_row(op, out, a, step_a, b, step_b, n);
}
void row_i64(Binary op, Index* out, const Index* a, Index step_a, const Index* b, Index step_b, Index n) {
  binary_row(op, out, a, step_a, b, step_b, n);
}
void nest_f32(Binary op, float* out, const float* a, const float* b, const Nest<2>& nest, Index begin, Index end) {
  binary_nest(op, out, a, b, nest, begin, end);
}
void nest_f64(Binary op, double* out, const double* a, const double* b, const Nest<2>& nest, Index begin, Index end) {
  binary_nest(op, out, a, b, nest, begin, end);
}
void nest_i64(Binary op, Index* out, const Index* a, const Index* b, const Nest<2>& nest, Index begin, Index end) {
  binary_nest(op, out, a, b, nest, begin, end);
}

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(row_f32);
HWY_EXPORT(row_f64);
HWY_EXPORT(row_i64);
HWY_EXPORT(nest_f32);
HWY_EXPORT(nest_f64);
HWY_EXPORT(nest_i64);

template <class T>
auto row_kernel() {
  if constexpr (std::is_same_v<T, Index>)
    return HWY_DYNAMIC_DISPATCH(row_i64);
  else
    return pick<T>(HWY_DYNAMIC_DISPATCH(row_f32), HWY_DYNAMIC_DISPATCH(row_f64));
}

template <class T>
auto nest_kernel() {
  if constexpr (std::is_same_v<T, Index>)
    return HWY_DYNAMIC_DISPATCH(nest_i64);
  else
    return pick<T>(HWY_DYNAMIC_DISPATCH(nest_f32), HWY_DYNAMIC_DISPATCH(nest_f64));
}

/// Elements that keep a thread busy for some five to ten microseconds.
Index grain_of(Binary op) {
  switch (op) {
    case Binary::pow:
    case Binary::pow_slope: return 2048;
    case Binary::tanh_backward:
    case Binary::sigmoid_backward:
    case Binary::silu_backward:
    case Binary::gelu_erf_backward:
    case Binary::gelu_tanh_backward: return 16384;
    default: return 32768;
  }
}

/// The step of an operand that one loop over all elements can walk, or -1.
Index flat_step(const Dims& strides, const Dims& shape) {
  if (is_row_major(strides, shape)) return 1;
  return is_one_element(strides, shape) ? 0 : -1;
}

}  // namespace

template <class T>
void binary(Binary op, T* out, Strided<T> a, Strided<T> b, const Dims& shape) {
  const Index n = count_of(shape);
  if (n == 0) return;
  const Index step_a = flat_step(a.strides, shape), step_b = flat_step(b.strides, shape);
  if (step_a >= 0 && step_b >= 0) {
    const auto run = row_kernel<T>();
    parallel_for(n, grain_of(op), [=, x = a.data, y = b.data](Index begin, Index end) {
      run(op, out + begin, x + begin * step_a, step_a, y + begin * step_b, step_b, end - begin);
    });
    return;
  }
  const Walkable<T> x(a, shape), y(b, shape);
  const Nest<2> nest(shape, *x, *y);
  const auto run = nest_kernel<T>();
  parallel_for(n, grain_of(op), [&](Index begin, Index end) { run(op, out, (*x).data, (*y).data, nest, begin, end); });
}

template void binary(Binary, float*, Strided<float>, Strided<float>, const Dims&);
template void binary(Binary, double*, Strided<double>, Strided<double>, const Dims&);
template void binary(Binary, Index*, Strided<Index>, Strided<Index>, const Dims&);

template <class T>
void accumulate(T* acc, Strided<T> x, const Dims& shape) {
  binary(Binary::add, acc, {acc, detail::row_major_strides(shape)}, x, shape);
}

template void accumulate(float*, Strided<float>, const Dims&);
template void accumulate(double*, Strided<double>, const Dims&);
template void accumulate(Index*, Strided<Index>, const Dims&);

}  // namespace heed::kernels
#endif
