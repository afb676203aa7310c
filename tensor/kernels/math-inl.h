// Per target: Highway includes this file once for each (see simd.h), hence the guard that flips.
#if defined(HEED_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_MATH_INL_H
#undef HEED_MATH_INL_H
#else
#define HEED_MATH_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>
#include <utility>

// exp, log, log1p, tanh, sigmoid and what gelu is made of, on vectors of float or double: the same code, other coefficients.
//
// NaN gives NaN; infinities, zeros of either sign, subnormal arguments and subnormal results are right. The polynomials are minimax fits
// (Remez) of relative error, computed with 50 digits and rounded. Largest errors found by tests/kernels/math_test.cpp, in units of the last
// place of the result:
//
//              f32     f64     method
//   exp        1.0     1.0     x = n ln 2 + r; 1 + r + r^2 P(r); scaled by 2^n with one rounding
//   log        0.9     0.9     x = 2^k m; log m = 2 atanh s with s = f / (2 + f), f = m - 1, arranged as f - (f^2/2 - s (f^2/2 + R(s^2)))
//   log1p      1.4     1.3     as log of 1 + x, with the rounding of 1 + x put back into f
//   tanh       1.5     1.5     x + x^3 P(x^2) below 1/2, E / (E + 2) with E = e^(2 abs(x)) - 1
//   sigmoid    2.4     2.3     1 / (1 + e^-x), or e^x / (1 + e^x) for x < 0
//   erfc       4       4       e^-a^2 t P(1 - 2 K t) with t = 1 / (a + K); after Shepherd and Laframboise, "Chebyshev approximation of
//                              (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", Mathematics of Computation 36, 1981

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct MathConstants;

template <>
struct MathConstants<float> {
  using Bits = std::uint32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr Bits bias = 127;
  static constexpr float round_magic = 0x1.8p23f;             // adding it leaves a whole number in the low bits
  static constexpr Bits whole_magic = 0x4B000000;             // 2^23: its low mantissa bits take a whole number
  static constexpr Bits sqrt_half = 0x3F3504F3;               // sqrt(1/2)
  static constexpr Bits upper_half = 0xFFFFF000;              // keeps 12 mantissa bits: the square is exact
  static constexpr float log2e = 0x1.715476p0f;               // 1 / ln 2
  static constexpr float ln2_hi = 0x1.62e4p-1f;               // n * ln2_hi is exact
  static constexpr float ln2_lo = 0x1.7f7d1cp-20f;            // ln 2 - ln2_hi
  static constexpr float exp_min = -104.5f, exp_max = 89.0f;  // below exp is 0, above it is infinite
  static constexpr float tanh_max = 10.0f;                    // tanh is 1 above
  static constexpr float erfc_max = 10.2f;                    // erfc is 0 above
  static constexpr float erfc_k = 3.0f;
  static constexpr float exp_tail[] = {0x1.fffffcp-2f, 0x1.55548ap-3f, 0x1.55584cp-5f, 0x1.123f54p-7f, 0x1.6ad7f8p-10f};
  static constexpr float log_tail[] = {0x1.555554p-1f, 0x1.999c26p-2f, 0x1.23d3e2p-2f, 0x1.f13a34p-3f};
  static constexpr float tanh_small[] = {-0x1.55555p-2f, 0x1.110f1ap-3f, -0x1.b98932p-5f, 0x1.5ce136p-6f, -0x1.b32a8cp-8f};
  static constexpr float erfc[] = {0x1.12f21ep+0f,  -0x1.c44c48p-1f,  0x1.2e3268p-1f, -0x1.3deadp-2f,   0x1.e99734p-4f,
                                   -0x1.b7bd64p-6f, -0x1.415756p-10f, 0x1.93b5d8p-9f, -0x1.fbe6bcp-12f, -0x1.55c932p-12f};
};

template <>
struct MathConstants<double> {
  using Bits = std::uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr Bits bias = 1023;
  static constexpr double round_magic = 0x1.8p52;
  static constexpr Bits whole_magic = 0x4330000000000000;
  static constexpr Bits sqrt_half = 0x3FE6A09E667F3BCD;
  static constexpr Bits upper_half = 0xFFFFFFFFF8000000;
  static constexpr double log2e = 0x1.71547652b82fep0;
  static constexpr double ln2_hi = 0x1.62e42fefap-1;
  static constexpr double ln2_lo = 0x1.cf79abc9e3b3ap-40;
  static constexpr double exp_min = -746.0, exp_max = 710.0;
  static constexpr double tanh_max = 20.0;
  static constexpr double erfc_max = 27.3;
  static constexpr double erfc_k = 4.0;
  static constexpr double exp_tail[] = {0x1.000000000000ap-1,  0x1.55555555554f8p-3,  0x1.5555555550755p-5,  0x1.1111111128170p-7,
                                        0x1.6c16c1846fa41p-10, 0x1.a01a0128fdfc1p-13, 0x1.a0199944b3359p-16, 0x1.71df271fa7febp-19,
                                        0x1.28ae341a8d37bp-22, 0x1.ad7e890be043dp-26};
  static constexpr double log_tail[] = {0x1.555555555557dp-1, 0x1.9999999985196p-2, 0x1.2492493e35c80p-2, 0x1.c71c5498a616cp-3,
                                        0x1.7465c9fc7c597p-3, 0x1.39ac302064f62p-3, 0x1.2ea671ff193f4p-3};
  static constexpr double tanh_small[] = {-0x1.5555555555554p-2,  0x1.1111111110e61p-3,  -0x1.ba1ba1b9e7338p-5,  0x1.664f4872ec071p-6,
                                          -0x1.226e3299fbd8dp-7,  0x1.d6d335571581bp-9,  -0x1.7d9830cc84977p-10, 0x1.34ce254e03658p-11,
                                          -0x1.eca41ce2a1d5cp-13, 0x1.67668e7653c1cp-14, -0x1.61aa28a1e2994p-16};
  static constexpr double erfc[] = {
      0x1.18932bf08e154p+0,   -0x1.f3fe31ecb49c3p-1,  0x1.8be202d26c727p-1,   -0x1.14eacb1ad0195p-1,  0x1.52cac2370f233p-2,   -0x1.645fd8a4c9a14p-3,
      0x1.38dbd2c9355dap-4,   -0x1.b00c0525ac3c5p-6,  0x1.908f46ebf2bf2p-8,   -0x1.269b605990e58p-12, -0x1.dd282fe30db3dp-12, 0x1.72ce3fd10fa93p-13,
      -0x1.e80f40def7f26p-19, -0x1.3c7f12272aa06p-16, 0x1.3b31a91c5b9bep-18,  0x1.8087f7886d980p-20,  -0x1.c78e37490e0d4p-21, -0x1.751d77412e42fp-24,
      0x1.0b0c3ee36d86bp-23,  0x1.4a5d9e4e30933p-27,  -0x1.db8d7fd2feed5p-27, -0x1.7c39f6c85fc06p-29};
};

template <class D>
using Constants = MathConstants<hn::TFromD<D>>;

/// c[0] + c[1] x + c[2] x^2 + ...
template <class D, std::size_t N, class V = hn::Vec<D>>
HWY_INLINE V polynomial(D d, V x, const hn::TFromD<D> (&c)[N]) {
  V y = hn::Set(d, c[N - 1]);
  const auto step = [&]<std::size_t... I>(std::index_sequence<I...>) HWY_ATTR { ((y = hn::MulAdd(y, x, hn::Set(d, c[N - 2 - I]))), ...); };
  step(std::make_index_sequence<N - 1>());
  return y;
}

/// The smaller of x and hi, NaN for NaN: Highway leaves open what its Min and Max make of NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_most(D d, V x, hn::TFromD<D> hi) {
  const V high = hn::Set(d, hi);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(high, x);  // x86 returns the second operand when one is NaN
#else
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D d, V x, hn::TFromD<D> lo) {
  const V low = hn::Set(d, lo);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(low, x);
#else
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}

/// 2^n for whole n in the range of normal numbers, given as n + round_magic.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_of_2(D d, V n_plus_magic) {
  using C = Constants<D>;
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<C::mantissa_bits>(hn::Add(hn::BitCast(du, n_plus_magic), hn::Set(du, C::bias))));
}

/// p 2^n, rounded once, for whole n that may leave the range of normal numbers, and p near 1.
template <class D, class V>
HWY_INLINE V scale(D d, V p, V n) {
  using T = hn::TFromD<D>;
  using C = Constants<D>;
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, C::round_magic);
  // Nearly always: n is added to the exponent field. The result is exact, as it is below, so what stands in other lanes does not show.
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(n), hn::Set(d, T{C::bias - 2})))))
    return hn::BitCast(d, hn::Add(hn::BitCast(du, p), hn::ShiftLeft<C::mantissa_bits>(hn::BitCast(du, hn::Add(n, magic)))));
  const V half_plus_magic = hn::MulAdd(n, hn::Set(d, static_cast<T>(0.5)), magic);
  const V rest = hn::Sub(n, hn::Sub(half_plus_magic, magic));
  return hn::Mul(hn::Mul(p, power_of_2(d, half_plus_magic)), power_of_2(d, hn::Add(rest, magic)));
}
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<float> scale(hn::Full512<float>, hn::Vec512<float> p, hn::Vec512<float> n) {
  return hn::Vec512<float>{_mm512_scalef_ps(p.raw, n.raw)};
}
HWY_INLINE hn::Vec512<double> scale(hn::Full512<double>, hn::Vec512<double> p, hn::Vec512<double> n) {
  return hn::Vec512<double>{_mm512_scalef_pd(p.raw, n.raw)};
}
#endif

/// x - n ln 2, at most ln(2) / 2 in size, for x from exp_min to exp_max.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V reduce_exponent(D d, V x, V& n) {
  using C = Constants<D>;
  const V magic = hn::Set(d, C::round_magic);
  n = hn::Sub(hn::MulAdd(x, hn::Set(d, C::log2e), magic), magic);
  return hn::NegMulAdd(n, hn::Set(d, C::ln2_lo), hn::NegMulAdd(n, hn::Set(d, C::ln2_hi), x));
}

/// e^r - 1 for r from reduce_exponent.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_of_reduced(D d, V r) {
  return hn::MulAdd(hn::Mul(r, r), polynomial(d, r, Constants<D>::exp_tail), r);
}

/// exp(-inf) is 0 exactly, exp(0) is 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  V n;
  const V r = reduce_exponent(d, at_most(d, at_least(d, x, Constants<D>::exp_min), Constants<D>::exp_max), n);
  return scale(d, hn::Add(expm1_of_reduced(d, r), hn::Set(d, hn::TFromD<D>{1})), n);
}

/// u = 2^k m with sqrt(1/2) <= m < sqrt(2), for positive, finite and normal u. Returns the bits of k + bias.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> split_exponent(D d, V u, V& k, V& m) {
  using C = Constants<D>;
  const hn::RebindToUnsigned<D> du;
  const auto sqrt_half = hn::Set(du, C::sqrt_half);
  // The exponent field of u / sqrt(1/2) is k + bias.
  const auto shifted = hn::Add(hn::BitCast(du, u), hn::Sub(hn::Set(du, C::bias << C::mantissa_bits), sqrt_half));
  const auto biased = hn::ShiftRight<C::mantissa_bits>(shifted);
  const auto whole_magic = hn::Set(du, C::whole_magic);
  k = hn::Sub(hn::BitCast(d, hn::Or(biased, whole_magic)), hn::BitCast(d, hn::Set(du, C::whole_magic | C::bias)));
  const auto mantissa = hn::And(shifted, hn::Set(du, (typename C::Bits{1} << C::mantissa_bits) - 1));
  m = hn::BitCast(d, hn::Add(mantissa, sqrt_half));
  return biased;
}

/// k ln 2 + log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_of_split(D d, V k, V f) {
  using T = hn::TFromD<D>;
  using C = Constants<D>;
  const V s = hn::Div(f, hn::Add(f, hn::Set(d, T{2})));
  const V z = hn::Mul(s, s);
  const V r = hn::Mul(z, polynomial(d, z, C::log_tail));
  const V half_square = hn::Mul(hn::Mul(f, f), hn::Set(d, static_cast<T>(0.5)));
  const V low = hn::MulAdd(s, hn::Add(half_square, r), hn::Mul(k, hn::Set(d, C::ln2_lo)));
  return hn::MulAdd(k, hn::Set(d, C::ln2_hi), hn::Sub(f, hn::Sub(half_square, low)));
}

/// `y` for positive finite u; u itself for +inf and NaN, -inf for 0, NaN below.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_special_cases(D d, V u, V y) {
  using T = hn::TFromD<D>;
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  y = hn::IfThenElse(hn::Lt(u, infinity), y, u);
  y = hn::IfThenElse(hn::Eq(u, hn::Zero(d)), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Lt(u, hn::Zero(d)), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  using T = hn::TFromD<D>;
  using C = Constants<D>;
  constexpr T lift = static_cast<T>(std::uint64_t{1} << C::mantissa_bits);
  const auto subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<T>::min()));
  const V u = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, lift)), x);
  V k, m;
  split_exponent(d, u, k, m);
  k = hn::Sub(k, hn::IfThenElseZero(subnormal, hn::Set(d, T{C::mantissa_bits})));
  return log_special_cases(d, x, log_of_split(d, k, hn::Sub(m, hn::Set(d, T{1}))));
}

/// log(1 + x), exact to the last places for small x too.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log1p(D d, V x) {
  using C = Constants<D>;
  const hn::RebindToUnsigned<D> du;
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V u = hn::Add(x, one);
  // What rounding took away from u: exact in the order that subtracts the larger addend first.
  const auto large = hn::Gt(x, one);
  const V u_lo = hn::Sub(hn::IfThenElse(large, one, x), hn::Sub(u, hn::IfThenElse(large, x, one)));
  V k, m;
  const auto biased = split_exponent(d, u, k, m);
  // u_lo counts where 2^-k is no tiny number; its exponent field is 2 bias - (k + bias).
  const V scale_down = hn::BitCast(d, hn::ShiftLeft<C::mantissa_bits>(hn::Sub(hn::Set(du, 2 * C::bias), biased)));
  const V m_lo = hn::IfThenElseZero(hn::Lt(u, hn::Set(d, C::round_magic)), hn::Mul(u_lo, scale_down));
  const V y = log_special_cases(d, u, log_of_split(d, k, hn::Add(hn::Sub(m, one), m_lo)));
  return hn::CopySign(y, x);  // the sign of -0
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  using T = hn::TFromD<D>;
  using C = Constants<D>;
  const V a = at_most(d, hn::Abs(x), C::tanh_max);
  V n;
  const V p = expm1_of_reduced(d, reduce_exponent(d, hn::Add(a, a), n));
  const V power = power_of_2(d, hn::Add(n, hn::Set(d, C::round_magic)));
  const V e = hn::MulAdd(power, p, hn::Sub(power, hn::Set(d, T{1})));
  const V large = hn::Div(e, hn::Add(e, hn::Set(d, T{2})));
  const V square = hn::Mul(a, a);
  const V small = hn::MulAdd(hn::Mul(a, square), polynomial(d, square, C::tanh_small), a);
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, static_cast<T>(0.5))), small, large), x);
}

/// 1 / (1 + e^-x) and, in `complement`, 1 / (1 + e^x), each to its own last places.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x, V& complement) {
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  const V larger = hn::Div(one, hn::Add(one, e)), smaller = hn::Div(e, hn::Add(one, e));
  const auto negative = hn::Lt(x, hn::Zero(d));
  complement = hn::IfThenElse(negative, larger, smaller);
  return hn::IfThenElse(negative, smaller, larger);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

/// e^(-factor x^2) for a power of 2, from x of size up to erfc_max / sqrt(factor). x^2 is taken to twice the digits, or large x would lose
/// them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gauss(D d, V x, hn::TFromD<D> factor) {
#if HWY_NATIVE_FMA
  const V square = hn::Mul(x, x), square_lo = hn::MulSub(x, x, square);
#else
  const hn::RebindToUnsigned<D> du;
  const V upper = hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, Constants<D>::upper_half)));
  const V square = hn::Mul(upper, upper), square_lo = hn::Mul(hn::Sub(x, upper), hn::Add(x, upper));
#endif
  const V minus_factor = hn::Set(d, -factor);
  V n;
  const V r = hn::MulAdd(square_lo, minus_factor, reduce_exponent(d, hn::Mul(square, minus_factor), n));
  return scale(d, hn::Add(expm1_of_reduced(d, r), hn::Set(d, hn::TFromD<D>{1})), n);
}

/// factor erfc(a) for a = x times_x >= 0, given gauss = e^-(a^2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_of(D d, V x, hn::TFromD<D> times_x, V gauss, hn::TFromD<D> factor) {
  using T = hn::TFromD<D>;
  using C = Constants<D>;
  const V t = hn::Div(hn::Set(d, T{1}), hn::MulAdd(x, hn::Set(d, times_x), hn::Set(d, C::erfc_k)));
  const V u = hn::NegMulAdd(t, hn::Set(d, 2 * C::erfc_k), hn::Set(d, T{1}));
  return hn::Mul(hn::Mul(gauss, hn::Mul(t, hn::Set(d, factor))), polynomial(d, u, C::erfc));
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
