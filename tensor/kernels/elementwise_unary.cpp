#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/elementwise_unary.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "elementwise.h"
#include "gelu-inl.h"
#include "math-inl.h"
#include "parallel.h"
#include "partial-inl.h"
#include "walk.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

template <class T, class F>
void map(T* out, const T* x, Index n, F f) {
  const hn::ScalableTag<T> d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, out + i);
  if (i == n) return;
  // The last elements go the same way as the others: an element's bits must not depend on where a thread's range ends.
  store_first(f(d, load_first(d, n - i, x + i)), d, n - i, out + i);
}

template <class T>
void unary_range(Unary op, T* out, const T* x, Index n) {
  switch (op) {
    case Unary::neg: return map(out, x, n, [](auto, auto v) HWY_ATTR { return hn::Neg(v); });
    case Unary::exp: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return exp(d, v); });
    case Unary::log: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return log(d, v); });
    case Unary::log1p: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return log1p(d, v); });
    case Unary::sqrt: return map(out, x, n, [](auto, auto v) HWY_ATTR { return hn::Sqrt(v); });
    case Unary::rsqrt: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return hn::Div(hn::Set(d, T{1}), hn::Sqrt(v)); });
    case Unary::square: return map(out, x, n, [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); });
    case Unary::abs: return map(out, x, n, [](auto, auto v) HWY_ATTR { return hn::Abs(v); });
    case Unary::sign:
      return map(out, x, n, [](auto d, auto v) HWY_ATTR {
        const auto nonzero = hn::Gt(hn::Abs(v), hn::Zero(d));  // not for NaN, which stays
        return hn::IfThenElse(nonzero, hn::CopySign(hn::Set(d, T{1}), v), v);
      });
    case Unary::tanh: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return tanh(d, v); });
    case Unary::sigmoid: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return sigmoid(d, v); });
    case Unary::relu: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Zero(d), v); });
    case Unary::silu: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return silu(d, v); });
    case Unary::gelu_erf: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return gelu_erf(d, v); });
    case Unary::gelu_tanh: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return gelu_tanh(d, v); });
    case Unary::sech: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return sech(d, v); });
    case Unary::gelu_erf_bell: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return gelu_erf_bell(d, v); });
    case Unary::gelu_tanh_bell: return map(out, x, n, [](auto d, auto v) HWY_ATTR { return gelu_tanh_bell(d, v); });
  }
}

// Whole numbers wrap, so the arithmetic is unsigned.
void unary_i64(Unary op, Index* out, const Index* x, Index n) {
  const auto wrapping = [](Index v) { return static_cast<std::uint64_t>(v); };
  const auto each = [&](auto f) HWY_ATTR {
    for (Index i = 0; i < n; ++i) out[i] = static_cast<Index>(f(x[i]));
  };
  switch (op) {
    case Unary::neg: return each([&](Index v) HWY_ATTR { return 0 - wrapping(v); });
    case Unary::abs: return each([&](Index v) HWY_ATTR { return v < 0 ? 0 - wrapping(v) : wrapping(v); });
    case Unary::sign: return each([](Index v) HWY_ATTR { return (v > 0) - (v < 0); });
    case Unary::square: return each([&](Index v) HWY_ATTR { return wrapping(v) * wrapping(v); });
    case Unary::relu: return each([](Index v) HWY_ATTR { return v < 0 ? 0 : v; });
    default: return;
  }
}

void unary_f32(Unary op, float* out, const float* x, Index n) { unary_range(op, out, x, n); }
void unary_f64(Unary op, double* out, const double* x, Index n) { unary_range(op, out, x, n); }

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(unary_f32);
HWY_EXPORT(unary_f64);
HWY_EXPORT(unary_i64);

template <class T>
void range(Unary op, T* out, const T* x, Index n) {
  if constexpr (std::is_same_v<T, float>)
    HWY_DYNAMIC_DISPATCH(unary_f32)(op, out, x, n);
  else if constexpr (std::is_same_v<T, double>)
    HWY_DYNAMIC_DISPATCH(unary_f64)(op, out, x, n);
  else
    HWY_DYNAMIC_DISPATCH(unary_i64)(op, out, x, n);
}

/// Elements that keep a thread busy for some five to ten microseconds.
Index grain_of(Unary op) {
  switch (op) {
    case Unary::neg:
    case Unary::sqrt:
    case Unary::rsqrt:
    case Unary::square:
    case Unary::abs:
    case Unary::sign:
    case Unary::relu: return 32768;
    default: return 16384;
  }
}

}  // namespace

template <class T>
void unary(Unary op, T* out, Strided<T> x, const Dims& shape) {
  const Index n = count_of(shape);
  if (n == 0) return;
  if (!is_row_major(x.strides, shape)) {
    copy(out, detail::row_major_strides(shape), x, shape);
    x.data = out;
  }
  const T* in = x.data;
  parallel_for(n, grain_of(op), [=](Index begin, Index end) { range(op, out + begin, in + begin, end - begin); });
}

template void unary(Unary, float*, Strided<float>, const Dims&);
template void unary(Unary, double*, Strided<double>, const Dims&);
template void unary(Unary, Index*, Strided<Index>, const Dims&);

}  // namespace heed::kernels
#endif
