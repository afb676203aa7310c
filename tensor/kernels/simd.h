#pragma once

#include <string>
#include <type_traits>

#include "sanitizers.h"

// Private: which CPUs the SIMD kernels are compiled for. A kernel file begins
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "heed/tensor/kernels/softmax.cpp"
//   #include "simd.h"
//
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
//
// so that Highway compiles the file once for every target and picks one at run time. Code inside HWY_NAMESPACE stands in an unnamed
// namespace unless it is in an -inl.h file, lambdas there carry HWY_ATTR, and OpenMP stays outside.

#if !defined(NDEBUG) || defined(HEED_SANITIZED)
#define HEED_ONE_TARGET
#endif

#ifdef HEED_ONE_TARGET
// Builds for finding faults: the target that the compiler's flags name, so that there is one copy of every line to step through; or Highway's
// portable one, with -DHWY_COMPILE_ONLY_EMU128, whose masks touch whole vectors as those of NEON do. On x86 the address sanitizer gets AVX2: the
// vectors that release builds run on are what may reach beyond the end of a row.
#ifndef HWY_COMPILE_ONLY_EMU128
#define HWY_COMPILE_ONLY_STATIC
#if defined(HEED_ADDRESS_SANITIZER) && defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_AVX2
#endif
#endif
#else
// On x86: what the compiler may use anyway, AVX2 and AVX-512. The steps between and beyond (smaller bits) buy little for their compile time. On Arm:
// NEON; the tiles keep vectors in arrays, which SVE's cannot be in.
#define HWY_DISABLED_TARGETS (((HWY_SSSE3 | HWY_SSE4 | (HWY_AVX3 - 1)) & ~HWY_BASELINE_TARGETS) | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

namespace heed::kernels {

/// Highway's name of the target that kernels run on here: the best of simd_targets() that HEED_SIMD allows.
std::string simd_target();
/// "AVX3 AVX2 SCALAR": those that kernels are compiled for and the CPU has, the best first.
std::string simd_targets();

/// HEED_SIMD=AVX2 in the environment makes AVX2 the best target that is used. A name that is not among simd_targets() changes nothing and is told on
/// stderr, as OpenMP tells of its variables. Whether a target was set.
bool limit_simd_targets();
/// Before any kernel runs, in every program that has one.
inline const bool simd_targets_are_limited = limit_simd_targets();

/// The kernel for T of a pair that differs in the element type.
template <class T, class F32, class F64>
constexpr auto pick(F32* f32, F64* f64) {
  if constexpr (std::is_same_v<T, float>)
    return f32;
  else
    return f64;
}

}  // namespace heed::kernels
