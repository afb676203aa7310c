// Per target, as math-inl.h.
#if defined(HEED_UNROLLED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_UNROLLED_INL_H
#undef HEED_UNROLLED_INL_H
#else
#define HEED_UNROLLED_INL_H
#endif

#include <hwy/highway.h>

#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// f(0), f(1), ... with compile-time numbers, written out: an array of vectors indexed in a loop may end up in memory, and must not.
template <class F, int... i>
HWY_INLINE void unrolled(std::integer_sequence<int, i...>, const F& f) {
  (f(std::integral_constant<int, i>()), ...);
}
template <int count, class F>
HWY_INLINE void unrolled(const F& f) {
  unrolled(std::make_integer_sequence<int, count>(), f);
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
