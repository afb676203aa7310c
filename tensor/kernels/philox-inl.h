// The numbers of tensor/random.h, many at a time, for those who only ask whether they lie below a bound. Compiled once for every SIMD target.

#if defined(HEED_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_PHILOX_INL_H
#undef HEED_PHILOX_INL_H
#else
#define HEED_PHILOX_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../dtype.h"
#include "../random.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// out[i] = 0 where uniform_at(seed, position + i) < p, else `kept`, for n numbers and 0 <= p <= 1.
template <class T>
void dropout_factors(T* HWY_RESTRICT out, std::uint64_t seed, std::uint64_t position, Index n, double p, T kept) {
  if (p >= 1) {  // every number lies below
    std::fill_n(out, n, T{0});
    return;
  }
#if HWY_TARGET == HWY_SCALAR
  for (Index i = 0; i < n; ++i) out[i] = detail::uniform_at(seed, position + static_cast<std::uint64_t>(i)) < p ? T{0} : kept;
#else
  using Bits = std::uint64_t;
  const hn::ScalableTag<Bits> d;
  const hn::Repartition<std::uint32_t, decltype(d)> half;
  const hn::Repartition<T, decltype(d)> values;
  constexpr Index blocks = HWY_LANES(Bits);
  // A number is the upper 53 bits of a word, so u < p is word < bound.
  const auto bound = hn::Set(d, static_cast<Bits>(std::ceil(p * 0x1p53)) << 11);
  const auto low = hn::Set(d, 0xffffffff);
  const auto factor = hn::Set(values, kept);
  HWY_ALIGN T some[2 * blocks];
  // Each block of the generator makes two numbers; a first one that is not wanted is left out.
  Index i = -static_cast<Index>(position % 2);
  for (Bits block = position / 2; i < n; i += 2 * blocks, block += blocks) {
    const auto counter = hn::Iota(d, block);
    // The upper half of each lane holds what nobody looks at: only even 32-bit lanes are multiplied.
    auto c0 = counter, c1 = hn::ShiftRight<32>(counter), c2 = hn::Zero(d), c3 = hn::Zero(d);
    auto k0 = hn::Set(d, seed), k1 = hn::Set(d, seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto a = hn::MulEven(hn::BitCast(half, c0), hn::Set(half, 0xD2511F53));
      const auto b = hn::MulEven(hn::BitCast(half, c2), hn::Set(half, 0xCD9E8D57));
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c1), k0);
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c3), k1);
      c1 = b, c3 = a;
      k0 = hn::Add(k0, hn::Set(d, 0x9E3779B9)), k1 = hn::Add(k1, hn::Set(d, 0xBB67AE85));
    }
    const auto first = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1)), second = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
    const auto drop_first = hn::VecFromMask(d, hn::Lt(first, bound)), drop_second = hn::VecFromMask(d, hn::Lt(second, bound));
    T* const to = i >= 0 && i + 2 * blocks <= n ? out + i : some;
    if constexpr (sizeof(T) == 4) {
      const auto both = hn::OddEven(hn::BitCast(half, drop_second), hn::BitCast(half, drop_first));
      hn::StoreU(hn::AndNot(hn::BitCast(values, both), factor), values, to);
    } else {
      hn::StoreInterleaved2(hn::AndNot(hn::BitCast(values, drop_first), factor), hn::AndNot(hn::BitCast(values, drop_second), factor), values, to);
    }
    if (to == some)
      for (Index r = std::max<Index>(-i, 0); r < 2 * blocks && i + r < n; ++r) out[i + r] = some[r];
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#endif
