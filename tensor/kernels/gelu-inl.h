// Per target, as math-inl.h.
#if defined(HEED_GELU_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GELU_INL_H
#undef HEED_GELU_INL_H
#else
#define HEED_GELU_INL_H
#endif

#include "math-inl.h"

// gelu and silu with their derivatives (Hendrycks and Gimpel, "Gaussian error linear units", 2016; Elfwing and others, 2017). Written with the
// functions that are small for negative x, not with 1 + erf or 1 + tanh, which cancel there. gelu_erf is within 8 units of the last place
// down to subnormal results; gelu_tanh and silu lose, as exp(x) does for any rounded x, about as many units as their argument of exp is large.

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// x Phi(x) = x/2 (1 + erf(x / sqrt 2))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf(D d, V x) {
  V density;
  return hn::Mul(x, normal_cdf(d, x, density));
}

/// Phi(x) + x phi(x)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf_derivative(D d, V x) {
  constexpr hn::TFromD<D> flat = 64;  // the derivative is 0 or 1 beyond, and infinity times a density of 0 must not become NaN
  x = at_most(d, at_least(d, x, -flat), flat);
  V density;
  const V cdf = normal_cdf(d, x, density);
  return hn::MulAdd(x, density, cdf);
}

namespace gelu_constants {
inline constexpr double c1 = 1.59576912160573071176;  // 2 sqrt(2 / pi)
inline constexpr double c3 = c1 * 0.044715;
}  // namespace gelu_constants

/// x/2 (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x sigmoid(2 u)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  using T = hn::TFromD<D>;
  const V slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<T>(gelu_constants::c3)), hn::Set(d, static_cast<T>(gelu_constants::c1)));
  return hn::Mul(x, sigmoid(d, hn::Mul(x, slope)));
}

/// s + x s (1 - s) (2 u)' with s = sigmoid(2 u)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_derivative(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr T flat = 64;
  x = at_most(d, at_least(d, x, -flat), flat);
  const V c1 = hn::Set(d, static_cast<T>(gelu_constants::c1)), square = hn::Mul(x, x);
  const V c3 = hn::Set(d, static_cast<T>(gelu_constants::c3)), three_c3 = hn::Set(d, static_cast<T>(3 * gelu_constants::c3));
  V rest;
  const V s = sigmoid(d, hn::Mul(x, hn::MulAdd(square, c3, c1)), rest);
  return hn::MulAdd(hn::Mul(hn::Mul(x, s), rest), hn::MulAdd(square, three_c3, c1), s);
}

/// s (1 + x (1 - s)) with s = sigmoid(x)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_derivative(D d, V x) {
  using T = hn::TFromD<D>;
  x = at_most(d, at_least(d, x, Constants<D>::exp_min), -Constants<D>::exp_min);
  V rest;
  const V s = sigmoid(d, x, rest);
  return hn::Mul(s, hn::MulAdd(x, rest, hn::Set(d, T{1})));
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
