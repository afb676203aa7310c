#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/softmax.cpp"
#include "simd.h"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "onednn.h"
#include "parallel.h"
#include "row-inl.h"
#include "softmax.h"
#include "suits_onednn.h"

#ifndef HEED_SOFTMAX_ONCE
#define HEED_SOFTMAX_ONCE
namespace heed::kernels {
namespace {

// Rows of gradients so large that sums or differences overflow on the way: slowly, in f64 and scaled.
constexpr double down = 0x1p-64, up = 0x1p64;

template <class T>
void far_softmax_backward(T* dx, const T* y, const T* dy, Index n) {
  double dot = 0;
  for (Index j = 0; j < n; ++j) dot += static_cast<double>(y[j]) * (down * static_cast<double>(dy[j]));
  for (Index j = 0; j < n; ++j) dx[j] = static_cast<T>(static_cast<double>(y[j]) * (down * static_cast<double>(dy[j]) - dot) * up);
}

template <class T>
void far_log_softmax_backward(T* dx, const T* y, const T* dy, Index n) {
  double sum = 0;
  for (Index j = 0; j < n; ++j) sum += down * static_cast<double>(dy[j]);
  for (Index j = 0; j < n; ++j) dx[j] = static_cast<T>((down * static_cast<double>(dy[j]) - std::exp(static_cast<double>(y[j])) * sum) * up);
}

}  // namespace
}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

/// Rows of `vectors` vectors, the last of which is whole or a part: they do not go through memory, and a row can begin before the one before it ends.
template <int vectors, template <class> class Last, class T>
HWY_NOINLINE void short_softmax_rows(T* y, const T* x, Index rows, Index n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int last = vectors - 1;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  const Last<decltype(d)> end{d, last * lanes, n - last * lanes};
  const V lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (Index r = 0; r < rows; ++r, y += n, x += n) {
    V v[vectors];
    unrolled<last>([&](auto i) HWY_ATTR { v[i] = hn::LoadU(d, x + i * lanes); });
    v[last] = end.keep(end(x), lowest);
    V max = v[last];
    unrolled<last>([&](auto i) HWY_ATTR { max = hn::Max(v[i], max); });
    max = hn::MaxOfLanes(d, max);
    unrolled<vectors>([&](auto i) HWY_ATTR { v[i] = exp(d, hn::Sub(v[i], max)); });  // 0 behind the end
    V sum = v[last];
    unrolled<last>([&](auto i) HWY_ATTR { sum = hn::Add(sum, v[i]); });
    sum = hn::SumOfLanes(d, sum);
    unrolled<last>([&](auto i) HWY_ATTR { hn::StoreU(hn::Div(v[i], sum), d, y + i * lanes); });
    end.store(hn::Div(v[last], sum), y);
  }
}

template <template <class> class Last, class T>
void short_softmax_rows(T* y, const T* x, Index rows, Index n, Index vectors) {
  switch (vectors) {
    case 1: return short_softmax_rows<1, Last>(y, x, rows, n);
    case 2: return short_softmax_rows<2, Last>(y, x, rows, n);
    case 3: return short_softmax_rows<3, Last>(y, x, rows, n);
    case 4: return short_softmax_rows<4, Last>(y, x, rows, n);
    case 5: return short_softmax_rows<5, Last>(y, x, rows, n);
    case 6: return short_softmax_rows<6, Last>(y, x, rows, n);
    case 7: return short_softmax_rows<7, Last>(y, x, rows, n);
    default: return short_softmax_rows<8, Last>(y, x, rows, n);
  }
}

template <class T>
void softmax_row(T* y, const T* x, Index n) {
  const hn::ScalableTag<T> d;
  const auto max = hn::Set(d, max_row(d, x, n));
  const double sum = sum_row(d, n, [=](auto at) HWY_ATTR {
    const auto e = exp(at.d, hn::Sub(at(x), max));
    at.store(e, y);
    return e;
  });
  const auto scale = hn::Set(d, static_cast<T>(1 / sum));
  for_row(d, n, [=](auto at) HWY_ATTR { at.store(hn::Mul(at(y), scale), y); });
}

template <class T>
void softmax_rows(T* y, const T* x, Index rows, Index n) {
  const Index lanes = static_cast<Index>(hn::Lanes(hn::ScalableTag<T>())), vectors = (n + lanes - 1) / lanes;
  if (vectors > 8)
    for (Index r = 0; r < rows; ++r) softmax_row(y + r * n, x + r * n, n);
  else if (n == vectors * lanes)  // stores under a mask are slow on some CPUs
    short_softmax_rows<Whole>(y, x, rows, n, vectors);
  else
    short_softmax_rows<Part>(y, x, rows, n, vectors);
}

template <class T>
void softmax_or_zero_rows(T* y, const T* x, Index rows, Index n) {
  constexpr T nothing = -std::numeric_limits<T>::infinity();
  const auto is_dead = [=](Index r) {
    const T* row = x + r * n;
    // The quick test that most rows fail comes first.
    return row[0] == nothing && std::all_of(row, row + n, [=](T v) { return v == nothing; });
  };
  for (Index begin = 0; begin < rows;) {
    Index end = begin;
    while (end < rows && !is_dead(end)) ++end;
    softmax_rows(y + begin * n, x + begin * n, end - begin, n);
    for (; end < rows && is_dead(end); ++end) std::fill_n(y + end * n, n, T{});
    begin = end;
  }
}

template <class T>
void softmax_backward_rows(T* dx, const T* y, const T* dy, Index rows, Index n) {
  const hn::ScalableTag<T> d;
  const bool streams = may_stream(d, dx, rows, n);
  for (Index r = 0; r < rows; ++r, dx += n, y += n, dy += n) {
    const double dot = sum_row(d, n, [=](auto at) HWY_ATTR { return hn::Mul(at(y), at(dy)); });
    // Less than what is lost from the largest number when it is rounded: no difference overflows.
    if (!(std::abs(dot) < static_cast<double>(std::numeric_limits<T>::max() * std::numeric_limits<T>::epsilon() / 4))) {
      far_softmax_backward(dx, y, dy, n);
      continue;
    }
    const auto mean = hn::Set(d, static_cast<T>(dot));
    const auto gradient = [=](auto at) HWY_ATTR { return hn::Mul(at(y), hn::Sub(at(dy), mean)); };
    if (streams)
      stream_row(d, n, gradient, dx);
    else
      for_row(d, n, [=](auto at) HWY_ATTR { at.store(gradient(at), dx); });
  }
  if (streams) hwy::FlushStream();
}

template <class T>
void log_softmax_rows(T* y, const T* x, Index rows, Index n) {
  const hn::ScalableTag<T> d;
  for (Index r = 0; r < rows; ++r, y += n, x += n) {
    const auto max = hn::Set(d, max_row(d, x, n));
    const double sum = sum_row(d, n, [=](auto at) HWY_ATTR { return exp(at.d, hn::Sub(at(x), max)); });
    const auto log_sum = hn::Set(d, static_cast<T>(std::log(sum)));
    for_row(d, n, [=](auto at) HWY_ATTR { at.store(hn::Sub(hn::Sub(at(x), max), log_sum), y); });
  }
}

template <class T>
void log_softmax_backward_rows(T* dx, const T* y, const T* dy, Index rows, Index n) {
  const hn::ScalableTag<T> d;
  for (Index r = 0; r < rows; ++r, dx += n, y += n, dy += n) {
    const T total = static_cast<T>(sum_row(d, n, [=](auto at) HWY_ATTR { return at(dy); }));
    if (!std::isfinite(total)) {
      far_log_softmax_backward(dx, y, dy, n);
      continue;
    }
    const auto sum = hn::Set(d, total);
    for_row(d, n, [=](auto at) HWY_ATTR { at.store(hn::NegMulAdd(exp(at.d, at(y)), sum, at(dy)), dx); });
  }
}

void softmax_f32(float* y, const float* x, Index rows, Index n) { softmax_rows(y, x, rows, n); }
void softmax_f64(double* y, const double* x, Index rows, Index n) { softmax_rows(y, x, rows, n); }
void softmax_or_zero_f32(float* y, const float* x, Index rows, Index n) { softmax_or_zero_rows(y, x, rows, n); }
void softmax_or_zero_f64(double* y, const double* x, Index rows, Index n) { softmax_or_zero_rows(y, x, rows, n); }
void softmax_backward_f32(float* dx, const float* y, const float* dy, Index rows, Index n) { softmax_backward_rows(dx, y, dy, rows, n); }
void softmax_backward_f64(double* dx, const double* y, const double* dy, Index rows, Index n) { softmax_backward_rows(dx, y, dy, rows, n); }
void log_softmax_f32(float* y, const float* x, Index rows, Index n) { log_softmax_rows(y, x, rows, n); }
void log_softmax_f64(double* y, const double* x, Index rows, Index n) { log_softmax_rows(y, x, rows, n); }
void log_softmax_backward_f32(float* dx, const float* y, const float* dy, Index rows, Index n) { log_softmax_backward_rows(dx, y, dy, rows, n); }
void log_softmax_backward_f64(double* dx, const double* y, const double* dy, Index rows, Index n) { log_softmax_backward_rows(dx, y, dy, rows, n); }

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);
HWY_EXPORT(softmax_or_zero_f32);
HWY_EXPORT(softmax_or_zero_f64);
HWY_EXPORT(softmax_backward_f32);
HWY_EXPORT(softmax_backward_f64);
HWY_EXPORT(log_softmax_f32);
HWY_EXPORT(log_softmax_f64);
HWY_EXPORT(log_softmax_backward_f32);
HWY_EXPORT(log_softmax_backward_f64);

/// Elements that keep a thread busy for some five to ten microseconds.
constexpr Index grain = 16384;

/// kernel(out, inputs..., rows, columns) over ranges of rows.
template <class F, class T, class... In>
void by_rows(F* kernel, Index rows, Index columns, T* out, const In*... in) {
  if (columns == 0) return;
  parallel_for(rows, std::max<Index>(grain / columns, 1),
               [=](Index begin, Index end) { kernel(out + begin * columns, (in + begin * columns)..., end - begin, columns); });
}

}  // namespace

namespace portable {

template <class T>
void softmax(T* y, const T* x, Index rows, Index columns) {
  by_rows(pick<T>(HWY_DYNAMIC_DISPATCH(softmax_f32), HWY_DYNAMIC_DISPATCH(softmax_f64)), rows, columns, y, x);
}

template <class T>
void softmax_backward(T* dx, const T* y, const T* dy, Index rows, Index columns) {
  by_rows(pick<T>(HWY_DYNAMIC_DISPATCH(softmax_backward_f32), HWY_DYNAMIC_DISPATCH(softmax_backward_f64)), rows, columns, dx, y, dy);
}

template void softmax(float*, const float*, Index, Index);
template void softmax(double*, const double*, Index, Index);
template void softmax_backward(float*, const float*, const float*, Index, Index);
template void softmax_backward(double*, const double*, const double*, Index, Index);

}  // namespace portable

template <class T>
void softmax(T* y, const T* x, Index rows, Index columns) {
  if constexpr (std::is_same_v<T, float>) {
    if (softmax_suits_onednn() && onednn::softmax(y, x, rows, columns)) return;
  }
  portable::softmax(y, x, rows, columns);
}

template <class T>
void softmax_backward(T* dx, const T* y, const T* dy, Index rows, Index columns) {
  if constexpr (std::is_same_v<T, float>) {
    if (softmax_suits_onednn() && onednn::softmax_backward(dx, y, dy, rows, columns)) return;
  }
  portable::softmax_backward(dx, y, dy, rows, columns);
}

template <class T>
void softmax_or_zero(T* y, const T* x, Index rows, Index columns) {
  if constexpr (std::is_same_v<T, float>) {  // which refuses the rows that are to be zeros
    if (softmax_suits_onednn() && onednn::softmax(y, x, rows, columns)) return;
  }
  by_rows(pick<T>(HWY_DYNAMIC_DISPATCH(softmax_or_zero_f32), HWY_DYNAMIC_DISPATCH(softmax_or_zero_f64)), rows, columns, y, x);
}

template <class T>
void log_softmax(T* y, const T* x, Index rows, Index columns) {
  by_rows(pick<T>(HWY_DYNAMIC_DISPATCH(log_softmax_f32), HWY_DYNAMIC_DISPATCH(log_softmax_f64)), rows, columns, y, x);
}

template <class T>
void log_softmax_backward(T* dx, const T* y, const T* dy, Index rows, Index columns) {
  by_rows(pick<T>(HWY_DYNAMIC_DISPATCH(log_softmax_backward_f32), HWY_DYNAMIC_DISPATCH(log_softmax_backward_f64)), rows, columns, dx, y, dy);
}

template void softmax(float*, const float*, Index, Index);
template void softmax(double*, const double*, Index, Index);
template void softmax_backward(float*, const float*, const float*, Index, Index);
template void softmax_backward(double*, const double*, const double*, Index, Index);
template void softmax_or_zero(float*, const float*, Index, Index);
template void softmax_or_zero(double*, const double*, Index, Index);
template void log_softmax(float*, const float*, Index, Index);
template void log_softmax(double*, const double*, Index, Index);
template void log_softmax_backward(float*, const float*, const float*, Index, Index);
template void log_softmax_backward(double*, const double*, const double*, Index, Index);

}  // namespace heed::kernels
#endif
