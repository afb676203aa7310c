// Per target, as math-inl.h.
#if defined(HEED_PARTIAL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_PARTIAL_INL_H
#undef HEED_PARTIAL_INL_H
#else
#define HEED_PARTIAL_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "../layout.h"

// The first `count` lanes of a vector, for the last elements of a row: nothing behind them is read or written. And truth values as masks.

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2
// The masks of such a target touch the whole vector, and where another thread owns what is behind the end, a masked store loses its work. AVX2 is
// counted among them for elements narrower than ours.
inline constexpr bool masks_touch_all = true;
#else
inline constexpr bool masks_touch_all = false;
#endif

/// Zeros in the other lanes.
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, Index count, const hn::TFromD<D>* p) {
  if constexpr (!masks_touch_all) return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, p);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)] = {};
  for (Index i = 0; i < count; ++i) lanes[i] = p[i];
  return hn::Load(d, lanes);
}

/// Lanes whose byte is true, of as many bytes as there are lanes.
template <class D>
HWY_INLINE hn::Mask<D> load_mask(D d, const bool* p) {
  const hn::RebindToUnsigned<D> u;
  const hn::Rebind<std::uint8_t, D> bytes;
  const auto read = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(p));
  const auto wide = [&]() HWY_ATTR {
    if constexpr (sizeof(hn::TFromD<D>) == 1)
      return read;
    else if constexpr (sizeof(hn::TFromD<D>) == 4)
      return hn::PromoteTo(u, read);
    else
      return hn::PromoteTo(u, hn::PromoteTo(hn::Rebind<std::uint32_t, D>(), read));
  }();
  return hn::RebindMask(d, hn::Ne(wide, hn::Zero(u)));
}

template <class D>
HWY_INLINE void store_first(hn::Vec<D> v, D d, Index count, hn::TFromD<D>* p) {
  if constexpr (!masks_touch_all) return hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(count)), d, p);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (Index i = 0; i < count; ++i) p[i] = lanes[i];
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
