#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/layer_norm.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "layer_norm.h"
#include "layer_norm_far.h"
#include "parallel.h"
#include "row-inl.h"
#include "walk.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

template <class T>
void forward_rows(T* y, T* mean, T* rstd, const T* x, const T* weight, const T* bias, double eps, Index begin, Index end, Index n) {
  const hn::ScalableTag<T> d;
  const double scale = 1 / static_cast<double>(n);
  for (Index r = begin; r < end; ++r) {
    const T* row = x + r * n;
    T* out = y + r * n;
    const T rough = static_cast<T>(sum_row(d, n, [=](auto at) HWY_ATTR { return at(row); }) * scale);
    // Deviations from the rounded mean: their sum puts the rounding right, so that constant rows give exact zeros.
    const auto center = hn::Set(d, rough);
    double left = 0, squares = 0;
    sum_row(d, n, left, squares, [=](auto at, auto& deviation, auto& square) HWY_ATTR {
      deviation = hn::Sub(at(row), center);
      square = hn::Mul(deviation, deviation);
    });
    left *= scale;
    const double variance = std::max(squares * scale - left * left, 0.0);
    if (!Near<T>::variance(variance + eps)) {
      far_row(out, mean + r, rstd + r, row, weight, bias, eps, n);
      continue;
    }
    const T m = static_cast<T>(static_cast<double>(rough) + left);
    const auto mean_v = hn::Set(d, m);
    const T s = static_cast<T>(1 / std::sqrt(variance + eps));
    const auto rstd_v = hn::Set(d, s);
    mean[r] = m, rstd[r] = s;
    const auto each = [=](auto f)
                          HWY_ATTR { for_row(d, n, [=](auto at) HWY_ATTR { at.store(f(at, hn::Mul(hn::Sub(at(row), mean_v), rstd_v)), out); }); };
    if (weight && bias)
      each([=](auto at, auto v) HWY_ATTR { return hn::MulAdd(v, at(weight), at(bias)); });
    else if (weight)
      each([=](auto at, auto v) HWY_ATTR { return hn::Mul(v, at(weight)); });
    else if (bias)
      each([=](auto at, auto v) HWY_ATTR { return hn::Add(v, at(bias)); });
    else
      each([=](auto, auto v) HWY_ATTR { return v; });
  }
}

template <class T>
void backward_rows(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* mean, const T* rstd, const T* weight, double eps, Index begin,
                   Index end, Index n) {
  const hn::ScalableTag<T> d;
  const double scale = 1 / static_cast<double>(n);
  for (Index r = begin; r < end; ++r) {
    const T* row = x + r * n;
    const T* g = dy + r * n;
    T* out = dx ? dx + r * n : nullptr;
    if (!Near<T>::rstd(rstd[r])) {
      far_row_backward(out, dweight, dbias, g, row, weight, eps, n);
      continue;
    }
    const auto mean_v = hn::Set(d, mean[r]), rstd_v = hn::Set(d, rstd[r]);
    const auto normalized = [=](auto at) HWY_ATTR { return hn::Mul(hn::Sub(at(row), mean_v), rstd_v); };
    const auto gradient = [=](auto at) HWY_ATTR { return weight ? hn::Mul(at(g), at(weight)) : at(g); };
    double sum = 0, dot = 0;
    if (out)
      sum_row(d, n, sum, dot, [=](auto at, auto& a, auto& b) HWY_ATTR {
        a = gradient(at);
        b = hn::Mul(a, normalized(at));
      });
    sum *= scale, dot *= scale;
    if (out && !Near<T>::gradient(sum, dot) && !(sum == 0 && dot == 0 && std::all_of(g, g + n, [](T v) { return v == 0; }))) {
      far_row_backward(out, static_cast<T*>(nullptr), static_cast<T*>(nullptr), g, row, weight, eps, n);
      out = nullptr;
    }
    const auto a = hn::Set(d, static_cast<T>(sum)), b = hn::Set(d, static_cast<T>(dot));
    for_row(d, n, [=](auto at) HWY_ATTR {
      const auto xh = normalized(at);
      if (out) at.store(hn::Mul(rstd_v, hn::NegMulAdd(xh, b, hn::Sub(gradient(at), a))), out);
      if (dweight) at.store(hn::MulAdd(at(g), xh, at(dweight)), dweight);
      if (dbias) at.store(hn::Add(at(dbias), at(g)), dbias);
    });
  }
}

void forward_f32(float* y, float* mean, float* rstd, const float* x, const float* weight, const float* bias, double eps, Index begin, Index end,
                 Index n) {
  forward_rows(y, mean, rstd, x, weight, bias, eps, begin, end, n);
}
void forward_f64(double* y, double* mean, double* rstd, const double* x, const double* weight, const double* bias, double eps, Index begin, Index end,
                 Index n) {
  forward_rows(y, mean, rstd, x, weight, bias, eps, begin, end, n);
}
void backward_f32(float* dx, float* dweight, float* dbias, const float* dy, const float* x, const float* mean, const float* rstd, const float* weight,
                  double eps, Index begin, Index end, Index n) {
  backward_rows(dx, dweight, dbias, dy, x, mean, rstd, weight, eps, begin, end, n);
}
void backward_f64(double* dx, double* dweight, double* dbias, const double* dy, const double* x, const double* mean, const double* rstd,
                  const double* weight, double eps, Index begin, Index end, Index n) {
  backward_rows(dx, dweight, dbias, dy, x, mean, rstd, weight, eps, begin, end, n);
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

/// Elements that keep a thread busy for some five to ten microseconds.
constexpr Index grain = 16384;

/// out = sum over the parts, in f64.
template <class T>
void combine(T* out, const T* parts, Index count, Index columns) {
  parallel_for(columns, grain / std::max<Index>(count, 1) + 1, [=](Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      double sum = 0;
      for (Index p = 0; p < count; ++p) sum += static_cast<double>(parts[p * columns + j]);
      out[j] = static_cast<T>(sum);
    }
  });
}

}  // namespace

template <class T>
void layer_norm(T* y, T* mean, T* rstd, const T* x, const T* weight, const T* bias, double eps, Index rows, Index columns) {
  const auto run = pick<T>(HWY_DYNAMIC_DISPATCH(forward_f32), HWY_DYNAMIC_DISPATCH(forward_f64));
  parallel_for(rows, std::max<Index>(grain / std::max<Index>(columns, 1), 1),
               [=](Index begin, Index end) { run(y, mean, rstd, x, weight, bias, eps, begin, end, columns); });
}

template <class T>
void layer_norm_backward(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* mean, const T* rstd, const T* weight, double eps, Index rows,
                         Index columns) {
  const auto run = pick<T>(HWY_DYNAMIC_DISPATCH(backward_f32), HWY_DYNAMIC_DISPATCH(backward_f64));
  // Blocks of rows, each with its own sums for the parameters. Their number depends on the sizes only, and with it the bits.
  constexpr Index block = 64;
  const Index blocks = (rows + block - 1) / block;
  const Index parts = (dweight != nullptr) + (dbias != nullptr);
  const Scratch<T> scratch(blocks * parts * columns);
  T* const sums = scratch.data();
  T* const weight_sums = dweight ? sums : nullptr;
  T* const bias_sums = dbias ? sums + (dweight ? blocks * columns : 0) : nullptr;
  parallel_for(blocks, std::max<Index>(grain / std::max<Index>(block * columns, 1), 1), [=](Index begin, Index end) {
    for (Index b = begin; b < end; ++b) {
      T* const w = weight_sums ? weight_sums + b * columns : nullptr;
      T* const s = bias_sums ? bias_sums + b * columns : nullptr;
      if (w) std::fill_n(w, columns, T{});
      if (s) std::fill_n(s, columns, T{});
      run(dx, w, s, dy, x, mean, rstd, weight, eps, b * block, std::min((b + 1) * block, rows), columns);
    }
  });
  if (dweight) combine(dweight, weight_sums, blocks, columns);
  if (dbias) combine(dbias, bias_sums, blocks, columns);
  const auto overflowed = [=](const T* sums_of) { return sums_of && !std::all_of(sums_of, sums_of + columns, [](T v) { return std::isfinite(v); }); };
  if (!overflowed(dweight) && !overflowed(dbias)) return;
  const Scratch<double> again(2 * columns);
  far_parameters(dweight, dbias, dy, x, eps, rows, columns, again.data());
}

template void layer_norm(float*, float*, float*, const float*, const float*, const float*, double, Index, Index);
template void layer_norm(double*, double*, double*, const double*, const double*, const double*, double, Index, Index);
template void layer_norm_backward(float*, float*, float*, const float*, const float*, const float*, const float*, const float*, double, Index, Index);
template void layer_norm_backward(double*, double*, double*, const double*, const double*, const double*, const double*, const double*, double, Index,
                                  Index);

}  // namespace heed::kernels
#endif
