#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/optimizer.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "optimizer.h"
#include "parallel.h"
#include "row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

template <class T>
void sgd_range(T* p, const T* g, T* buffer, Index n, const SgdStep& step) {
  const hn::ScalableTag<T> d;
  const auto lr = hn::Set(d, static_cast<T>(step.lr)), decay = hn::Set(d, static_cast<T>(step.weight_decay));
  const auto momentum = hn::Set(d, static_cast<T>(step.momentum));
  const bool nesterov = step.nesterov, first = step.first;
  for_row(d, n, [=](auto at) HWY_ATTR {
    const auto value = at(p);
    auto gradient = hn::MulAdd(decay, value, at(g));
    if (buffer) {
      const auto moved = first ? gradient : hn::MulAdd(momentum, at(buffer), gradient);
      at.store(moved, buffer);
      gradient = nesterov ? hn::MulAdd(momentum, moved, gradient) : moved;
    }
    at.store(hn::NegMulAdd(lr, gradient, value), p);
  });
}

template <class V>
struct Moment {
  V v, root;  ///< the new v, and the square root of v / (1 - beta2^step)
};

/// Of one vector, where squares of gradients may have overflowed on the way to a v that does not. Where v itself does it is infinite, and the root
/// NaN: infinity would make a step of 0, which passes for one.
template <class D, class V = hn::Vec<D>>
HWY_NOINLINE Moment<V> far_moment(D d, V gradient, V v, const AdamStep& step) {
  using T = hn::TFromD<D>;
  const V rest = hn::Set(d, static_cast<T>(1 - step.beta2)), spread = hn::Set(d, static_cast<T>(1 / (1 - std::pow(step.beta2, step.step))));
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity()), square = hn::Mul(gradient, gradient);
  const V share = hn::IfThenElse(hn::Lt(square, infinity), hn::Mul(rest, square), hn::Mul(hn::Mul(rest, gradient), gradient));
  v = hn::MulAdd(hn::Set(d, static_cast<T>(step.beta2)), v, share);
  V root = hn::Sqrt(hn::Mul(v, spread));
  root = hn::IfThenElse(hn::Lt(root, infinity), root, hn::Mul(hn::Sqrt(v), hn::Sqrt(spread)));
  return {v, hn::IfThenElse(hn::Lt(root, infinity), root, hn::Set(d, std::numeric_limits<T>::quiet_NaN()))};
}

template <class T>
void adam_range(T* p, const T* g, T* m, T* v, Index n, const AdamStep& step) {
  const hn::ScalableTag<T> d;
  const auto beta1 = hn::Set(d, static_cast<T>(step.beta1)), rest1 = hn::Set(d, static_cast<T>(1 - step.beta1));
  const auto beta2 = hn::Set(d, static_cast<T>(step.beta2)), rest2 = hn::Set(d, static_cast<T>(1 - step.beta2));
  const auto size = hn::Set(d, static_cast<T>(step.lr / (1 - std::pow(step.beta1, step.step))));
  const auto spread = hn::Set(d, static_cast<T>(1 / (1 - std::pow(step.beta2, step.step))));
  const auto eps = hn::Set(d, static_cast<T>(step.eps)), infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  const AdamStep* const steps = &step;
  const auto keep = hn::Set(d, static_cast<T>(step.decoupled ? 1 - step.lr * step.weight_decay : 1));
  const auto decay = hn::Set(d, static_cast<T>(step.decoupled ? 0 : step.weight_decay));
  for_row(d, n, [=](auto at) HWY_ATTR {
    const auto value = at(p);
    const auto gradient = hn::MulAdd(decay, value, at(g));
    const auto m_new = hn::MulAdd(beta1, at(m), hn::Mul(rest1, gradient));
    auto v_new = hn::MulAdd(beta2, at(v), hn::Mul(rest2, hn::Mul(gradient, gradient)));
    auto root = hn::Sqrt(hn::Mul(v_new, spread));
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Lt(root, infinity)))) {
      const auto moment = far_moment(d, gradient, at(v), *steps);
      v_new = moment.v, root = moment.root;
    }
    at.store(m_new, m);
    at.store(v_new, v);
    const auto direction = hn::Div(m_new, hn::Add(root, eps));
    at.store(hn::NegMulAdd(size, direction, hn::Mul(keep, value)), p);
  });
}

void sgd_f32(float* p, const float* g, float* buffer, Index n, const SgdStep& step) { sgd_range(p, g, buffer, n, step); }
void sgd_f64(double* p, const double* g, double* buffer, Index n, const SgdStep& step) { sgd_range(p, g, buffer, n, step); }
void adam_f32(float* p, const float* g, float* m, float* v, Index n, const AdamStep& step) { adam_range(p, g, m, v, n, step); }
void adam_f64(double* p, const double* g, double* m, double* v, Index n, const AdamStep& step) { adam_range(p, g, m, v, n, step); }

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);
HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);

constexpr Index grain = 16384;  // elements for a thread

}  // namespace

template <class T>
void sgd(T* p, const T* g, T* buffer, Index n, const SgdStep& step) {
  const auto run = pick<T>(HWY_DYNAMIC_DISPATCH(sgd_f32), HWY_DYNAMIC_DISPATCH(sgd_f64));
  parallel_for(n, grain, [&](Index begin, Index end) { run(p + begin, g + begin, buffer ? buffer + begin : nullptr, end - begin, step); });
}

template <class T>
void adam(T* p, const T* g, T* m, T* v, Index n, const AdamStep& step) {
  const auto run = pick<T>(HWY_DYNAMIC_DISPATCH(adam_f32), HWY_DYNAMIC_DISPATCH(adam_f64));
  parallel_for(n, grain, [&](Index begin, Index end) { run(p + begin, g + begin, m + begin, v + begin, end - begin, step); });
}

template void sgd(float*, const float*, float*, Index, const SgdStep&);
template void sgd(double*, const double*, double*, Index, const SgdStep&);
template void adam(float*, const float*, float*, float*, Index, const AdamStep&);
template void adam(double*, const double*, double*, double*, Index, const AdamStep&);

}  // namespace heed::kernels
#endif
