// Per target, as math-inl.h.
#if defined(HEED_GELU_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GELU_INL_H
#undef HEED_GELU_INL_H
#else
#define HEED_GELU_INL_H
#endif

#include "math-inl.h"

// gelu and silu (Hendrycks and Gimpel, "Gaussian error linear units", 2016; Elfwing and others, 2017), the derivatives of all activations, and the
// bells that second derivatives are made of. Written with the functions that are small in the tails, not with 1 + erf, 1 + tanh or 1 - tanh^2, which
// cancel there. With a = |x| all of them are f(x) = x - t(a), f(-x) = -t(a), and their derivatives f'(x) = 1 - u(a), f'(-x) = u(a); t and u are
// products with an exponential that is scaled last, so that they reach down to the smallest number. Errors: tests/autograd/tails_test.cpp. gelu_tanh
// loses, as exp(w) does for a rounded w, about as many units as its w is large.

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// Where the functions are what they are at infinity, products with an exponential of 0 included.
template <class T>
struct Far;
template <>
struct Far<float> {
  static constexpr float exp = 110, normal = 15, cubic = 12;
};
template <>
struct Far<double> {
  static constexpr double exp = 753, normal = 39.6, cubic = 23;
};

/// p 2^n, rounded once, for any p and whole n down to twice the smallest exponent.
template <class D, class V>
HWY_INLINE V scale_any(D d, V p, V n) {
  using T = hn::TFromD<D>;
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<D, hn::Full512<T>>) return scale(d, p, n);
#endif
  const V magic = hn::Set(d, Constants<D>::round_magic), half_plus_magic = hn::MulAdd(n, hn::Set(d, static_cast<T>(0.5)), magic);
  const V rest = hn::Sub(n, hn::Sub(half_plus_magic, magic));
  return hn::Mul(hn::Mul(p, power_of_2(d, half_plus_magic)), power_of_2(d, hn::Add(rest, magic)));
}

/// e^-a = p 2^n, 0 <= a <= Far::exp
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_minus(D d, V a, V& n) {
  return hn::Add(expm1_of_reduced(d, reduce_exponent(d, hn::Neg(a), n)), hn::Set(d, hn::TFromD<D>{1}));
}

/// e^(-a^2/2) = p 2^n, 0 <= a <= Far::normal. a^2 is taken to twice the digits, or large a would lose them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_square(D d, V a, V& n) {
  using T = hn::TFromD<D>;
#if HWY_NATIVE_FMA
  const V square = hn::Mul(a, a), low = hn::MulSub(a, a, square);
#else
  const hn::RebindToUnsigned<D> du;
  const V upper = hn::BitCast(d, hn::And(hn::BitCast(du, a), hn::Set(du, Constants<D>::upper_half)));
  const V square = hn::Mul(upper, upper), low = hn::Mul(hn::Sub(a, upper), hn::Add(a, upper));
#endif
  const V minus_half = hn::Set(d, static_cast<T>(-0.5));
  const V r = hn::MulAdd(low, minus_half, reduce_exponent(d, hn::Mul(square, minus_half), n));
  return hn::Add(expm1_of_reduced(d, r), hn::Set(d, T{1}));
}

/// -t(a) below 0, x - t(a) above
template <class D, class V = hn::Vec<D>>
HWY_INLINE V value_of_tail(D d, V x, V t) {
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Neg(t), hn::Sub(x, t));
}
/// u(a) below 0, 1 - u(a) above
template <class D, class V = hn::Vec<D>>
HWY_INLINE V slope_of_tail(D d, V x, V u) {
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), u, hn::Sub(hn::Set(d, hn::TFromD<D>{1}), u));
}

/// 2 / (e^x + e^-x)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sech(D d, V x) {
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::Add(e, e), hn::MulAdd(e, e, hn::Set(d, hn::TFromD<D>{1})));
}

/// 1 - tanh^2 x, as the square of sech
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_derivative(D d, V x) {
  const V y = sech(d, x);
  return hn::Mul(y, y);
}

/// s (1 - s) with s = sigmoid(x), as the square of sech(x/2) / 2
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_derivative(D d, V x) {
  using T = hn::TFromD<D>;
  const V e = exp(d, hn::Mul(hn::Abs(x), hn::Set(d, static_cast<T>(-0.5))));
  const V y = hn::Div(e, hn::MulAdd(e, e, hn::Set(d, T{1})));
  return hn::Mul(y, y);
}

/// Phi(-a) e^(a^2/2), a >= 0
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_tail(D d, V a) {
  using T = hn::TFromD<D>;
  return erfc_of(d, a, static_cast<T>(0.70710678118654752440), hn::Set(d, T{1}), static_cast<T>(0.5));
}

/// x Phi(x) = x/2 (1 + erf(x / sqrt 2)): t = a Phi(-a)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf(D d, V x) {
  const V a = at_most(d, hn::Abs(x), Far<hn::TFromD<D>>::normal);
  V n;
  const V p = exp_of_square(d, a, n);
  return value_of_tail(d, x, scale_any(d, hn::Mul(p, hn::Mul(a, normal_tail(d, a))), n));
}

/// Phi(x) + x phi(x): u = Phi(-a) - a phi(a)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf_derivative(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr double inverse_sqrt_2pi = 0.39894228040143267794;
  const V a = at_most(d, hn::Abs(x), Far<T>::normal);
  V n;
  const V p = exp_of_square(d, a, n);
  return slope_of_tail(d, x, scale_any(d, hn::Mul(p, hn::NegMulAdd(a, hn::Set(d, static_cast<T>(inverse_sqrt_2pi)), normal_tail(d, a))), n));
}

/// e^(-x^2/4): squared, what the density of the normal distribution is proportional to.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf_bell(D d, V x) {
  using T = hn::TFromD<D>;
  return gauss(d, at_most(d, hn::Abs(x), static_cast<T>(1.5) * Far<T>::normal), static_cast<T>(0.25));
}

/// w = c1 x + c3 x^3 and w' = c1 + 3 c3 x^2
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_cubic(D d, V x, V& slope) {
  using T = hn::TFromD<D>;
  constexpr double c1 = 1.59576912160573071176, c3 = c1 * 0.044715;  // c1 = 2 sqrt(2 / pi)
  const V linear = hn::Set(d, static_cast<T>(c1)), square = hn::Mul(x, x);
  slope = hn::MulAdd(square, hn::Set(d, static_cast<T>(3 * c3)), linear);
  return hn::Mul(x, hn::MulAdd(square, hn::Set(d, static_cast<T>(c3)), linear));
}

/// x/2 (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x sigmoid(w), w = 2 u: t = a / (1 + e^w(a))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  using T = hn::TFromD<D>;
  const V a = at_most(d, hn::Abs(x), Far<T>::cubic);
  V n, slope;
  const V p = exp_of_minus(d, gelu_cubic(d, a, slope), n), e = scale_any(d, p, n);
  return value_of_tail(d, x, scale_any(d, hn::Div(hn::Mul(p, a), hn::Add(e, hn::Set(d, T{1}))), n));
}

/// s + x s (1 - s) w' with s = sigmoid(w): u = s(-a) (1 - a w' s(a))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_derivative(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1}), a = at_most(d, hn::Abs(x), Far<T>::cubic);
  V n, slope;
  const V p = exp_of_minus(d, gelu_cubic(d, a, slope), n), s = hn::Div(one, hn::Add(scale_any(d, p, n), one));
  return slope_of_tail(d, x, scale_any(d, hn::Mul(hn::Mul(p, s), hn::NegMulAdd(hn::Mul(a, slope), s, one)), n));
}

/// sech(w/2) / 2: squared, s (1 - s)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_bell(D d, V x) {
  using T = hn::TFromD<D>;
  const V half = hn::Set(d, static_cast<T>(0.5));
  V slope;
  return hn::Mul(half, sech(d, hn::Mul(half, gelu_cubic(d, at_most(d, hn::Abs(x), Far<T>::cubic), slope))));
}

/// x / (1 + e^-x): t = a / (1 + e^a)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  using T = hn::TFromD<D>;
  const V a = at_most(d, hn::Abs(x), Far<T>::exp);
  V n;
  const V p = exp_of_minus(d, a, n), e = scale_any(d, p, n);
  return value_of_tail(d, x, scale_any(d, hn::Div(hn::Mul(p, a), hn::Add(e, hn::Set(d, T{1}))), n));
}

/// s + x s (1 - s) with s = sigmoid(x): u = s(-a) (1 - a s(a))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_derivative(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1}), a = at_most(d, hn::Abs(x), Far<T>::exp);
  V n;
  const V p = exp_of_minus(d, a, n), s = hn::Div(one, hn::Add(scale_any(d, p, n), one));
  return slope_of_tail(d, x, scale_any(d, hn::Mul(hn::Mul(p, s), hn::NegMulAdd(a, s, one)), n));
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
