#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/cross_entropy.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cross_entropy.h"
#include "parallel.h"
#include "row-inl.h"

#ifndef HEED_CROSS_ENTROPY_ONCE
#define HEED_CROSS_ENTROPY_ONCE
namespace heed::kernels {
namespace {

/// factor times the loss of a row whose differences from the largest element overflow: slowly, in f64 and scaled.
template <class T>
T far_loss(const T* x, T largest, double log_sum, Index target, double smoothing, double factor, Index n) {
  const auto below = [=](Index j) { return 0x1p-64 * static_cast<double>(largest) - 0x1p-64 * static_cast<double>(x[j]); };
  double value = smoothing == 1 ? 0 : (1 - smoothing) * below(target), sum = 0;
  for (Index j = 0; smoothing != 0 && j < n; ++j) sum += below(j);
  value += smoothing * (sum / static_cast<double>(n));
  return static_cast<T>(factor * log_sum + factor * value * 0x1p64);
}

}  // namespace
}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

template <class T>
void forward_row(T* loss, T* stats, const T* x, Index target, double smoothing, double factor, Index n) {
  const hn::ScalableTag<T> d;
  const T largest = max_row(d, x, n);
  const auto max = hn::Set(d, largest);
  double sum, sum_of_logs = 0;
  if (smoothing == 0) {
    sum = sum_row(d, n, [=](auto at) HWY_ATTR { return exp(at.d, hn::Sub(at(x), max)); });
  } else {
    sum_row(d, n, sum, sum_of_logs, [=](auto at, auto& e, auto& v) HWY_ATTR {
      v = hn::Sub(at(x), max);
      e = exp(at.d, v);
    });
  }
  const double log_sum = std::log(sum), share = 1 - smoothing;
  double value = 0;  // a logit of -inf must not meet a share of 0
  if (share != 0) value += share * (log_sum - static_cast<double>(x[target] - largest));
  if (smoothing != 0) value += smoothing * (log_sum - sum_of_logs / static_cast<double>(n));
  *loss = static_cast<T>(factor * value);
  if (!std::isfinite(*loss)) *loss = far_loss(x, largest, log_sum, target, smoothing, factor, n);
  stats[0] = largest, stats[1] = static_cast<T>(1 / sum);
}

template <class T>
void backward_row(T* dx, const T* x, const T* stats, Index target, double smoothing, T g, Index n) {
  const hn::ScalableTag<T> d;
  const auto max = hn::Set(d, stats[0]), scale = hn::Set(d, static_cast<T>(g * stats[1]));
  const auto even = hn::Set(d, static_cast<T>(static_cast<double>(g) * smoothing / static_cast<double>(n)));
  for_row(d, n, [=](auto at) HWY_ATTR { at.store(hn::MulSub(exp(at.d, hn::Sub(at(x), max)), scale, even), dx); });
  dx[target] = static_cast<T>(dx[target] - g * static_cast<T>(1 - smoothing));
}

template <class T>
void forward_rows(T* losses, T* stats, const T* x, const CrossEntropyTargets& targets, double factor, Index begin, Index end, Index n) {
  for (Index r = begin; r < end; ++r) {
    if (targets.classes[r] == targets.ignored)
      losses[r] = 0;
    else
      forward_row(losses + r, stats + 2 * r, x + r * n, targets.classes[r], targets.smoothing, factor, n);
  }
}

template <class T>
void backward_rows(T* dx, const T* x, const T* stats, const CrossEntropyTargets& targets, const T* g, Index g_stride, double factor, Index begin,
                   Index end, Index n) {
  for (Index r = begin; r < end; ++r) {
    if (targets.classes[r] == targets.ignored)
      std::fill_n(dx + r * n, n, T{0});
    else
      backward_row(dx + r * n, x + r * n, stats + 2 * r, targets.classes[r], targets.smoothing,
                   static_cast<T>(static_cast<double>(g[r * g_stride]) * factor), n);
  }
}

void forward_f32(float* losses, float* stats, const float* x, const CrossEntropyTargets& targets, double factor, Index begin, Index end, Index n) {
  forward_rows(losses, stats, x, targets, factor, begin, end, n);
}
void forward_f64(double* losses, double* stats, const double* x, const CrossEntropyTargets& targets, double factor, Index begin, Index end, Index n) {
  forward_rows(losses, stats, x, targets, factor, begin, end, n);
}
void backward_f32(float* dx, const float* x, const float* stats, const CrossEntropyTargets& targets, const float* g, Index g_stride, double factor,
                  Index begin, Index end, Index n) {
  backward_rows(dx, x, stats, targets, g, g_stride, factor, begin, end, n);
}
void backward_f64(double* dx, const double* x, const double* stats, const CrossEntropyTargets& targets, const double* g, Index g_stride,
                  double factor, Index begin, Index end, Index n) {
  backward_rows(dx, x, stats, targets, g, g_stride, factor, begin, end, n);
}

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

/// Rows that keep a thread busy for some five to ten microseconds.
Index grain_of(Index columns) { return std::max<Index>(1, 16384 / std::max<Index>(1, columns)); }

}  // namespace

template <class T>
void cross_entropy(T* losses, T* stats, const T* x, const CrossEntropyTargets& targets, double factor, Index rows, Index columns) {
  const auto kernel = pick<T>(HWY_DYNAMIC_DISPATCH(forward_f32), HWY_DYNAMIC_DISPATCH(forward_f64));
  parallel_for(rows, grain_of(columns), [&](Index begin, Index end) { kernel(losses, stats, x, targets, factor, begin, end, columns); });
}

template <class T>
void cross_entropy_backward(T* dx, const T* x, const T* stats, const CrossEntropyTargets& targets, const T* g, Index g_stride, double factor,
                            Index rows, Index columns) {
  const auto kernel = pick<T>(HWY_DYNAMIC_DISPATCH(backward_f32), HWY_DYNAMIC_DISPATCH(backward_f64));
  parallel_for(rows, grain_of(columns), [&](Index begin, Index end) { kernel(dx, x, stats, targets, g, g_stride, factor, begin, end, columns); });
}

template void cross_entropy(float*, float*, const float*, const CrossEntropyTargets&, double, Index, Index);
template void cross_entropy(double*, double*, const double*, const CrossEntropyTargets&, double, Index, Index);
template void cross_entropy_backward(float*, const float*, const float*, const CrossEntropyTargets&, const float*, Index, double, Index, Index);
template void cross_entropy_backward(double*, const double*, const double*, const CrossEntropyTargets&, const double*, Index, double, Index, Index);

}  // namespace heed::kernels
#endif
