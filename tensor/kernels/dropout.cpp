#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/dropout.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "dropout.h"
#include "parallel.h"
#include "philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

void factors_f32(float* out, std::uint64_t seed, std::uint64_t position, Index n, double p, float kept) {
  dropout_factors(out, seed, position, n, p, kept);
}
void factors_f64(double* out, std::uint64_t seed, std::uint64_t position, Index n, double p, double kept) {
  dropout_factors(out, seed, position, n, p, kept);
}

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(factors_f32);
HWY_EXPORT(factors_f64);

}  // namespace

template <class T>
void dropout_scale(T* out, std::uint64_t seed, std::uint64_t position, Index n, double p, T kept) {
  const auto kernel = pick<T>(HWY_DYNAMIC_DISPATCH(factors_f32), HWY_DYNAMIC_DISPATCH(factors_f64));
  parallel_for(n, 8192,
               [&](Index begin, Index end) { kernel(out + begin, seed, position + static_cast<std::uint64_t>(begin), end - begin, p, kept); });
}
template void dropout_scale(float*, std::uint64_t, std::uint64_t, Index, double, float);
template void dropout_scale(double*, std::uint64_t, std::uint64_t, Index, double, double);

}  // namespace heed::kernels
#endif
