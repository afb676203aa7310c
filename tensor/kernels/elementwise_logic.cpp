#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/elementwise_logic.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <limits>

#include "elementwise.h"
#include "parallel.h"
#include "partial-inl.h"
#include "walk.h"

// Truth values: comparisons, logic, selection. Plain loops that compilers turn into vectors of each target's width; of a selection they make
// branches, so that one is written out.

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

/// out = f(a, b) over one row; a step of 0 repeats the first element. Each case has its own loop, or no loop would become vectors.
template <class R, class T, class F>
void map_row(R* out, const T* a, Index step_a, const T* b, Index step_b, Index n, F f) {
  if (step_a != 0 && step_b != 0) {
    for (Index i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  } else if (step_a != 0) {
    const T fixed = *b;
    for (Index i = 0; i < n; ++i) out[i] = f(a[i], fixed);
  } else if (step_b != 0) {
    const T fixed = *a;
    for (Index i = 0; i < n; ++i) out[i] = f(fixed, b[i]);
  } else {
    const R value = f(*a, *b);
    for (Index i = 0; i < n; ++i) out[i] = value;
  }
}

template <class T>
void compare_row(Compare op, bool* out, const T* a, Index step_a, const T* b, Index step_b, Index n) {
  const auto each = [&](auto f) HWY_ATTR { map_row(out, a, step_a, b, step_b, n, f); };
  switch (op) {
    case Compare::eq: return each([](T x, T y) HWY_ATTR { return x == y; });
    case Compare::ne: return each([](T x, T y) HWY_ATTR { return x != y; });
    case Compare::lt: return each([](T x, T y) HWY_ATTR { return x < y; });
    case Compare::le: return each([](T x, T y) HWY_ATTR { return x <= y; });
    case Compare::gt: return each([](T x, T y) HWY_ATTR { return x > y; });
    case Compare::ge: return each([](T x, T y) HWY_ATTR { return x >= y; });
  }
}

template <class T>
void compare_nest(Compare op, bool* out, const T* a, const T* b, const Nest<2>& nest, Index begin, Index end) {
  const Index step_a = nest.strides[0].back(), step_b = nest.strides[1].back();
  for (Rows<2> rows(nest, begin, end); rows; begin += rows.count(), rows.next())
    compare_row(op, out + begin, a + rows.offset(0), step_a, b + rows.offset(1), step_b, rows.count());
}

void compare_f32(Compare op, bool* out, const float* a, const float* b, const Nest<2>& nest, Index begin, Index end) {
  compare_nest(op, out, a, b, nest, begin, end);
}
void compare_f64(Compare op, bool* out, const double* a, const double* b, const Nest<2>& nest, Index begin, Index end) {
  compare_nest(op, out, a, b, nest, begin, end);
}
void compare_i64(Compare op, bool* out, const Index* a, const Index* b, const Nest<2>& nest, Index begin, Index end) {
  compare_nest(op, out, a, b, nest, begin, end);
}
void compare_bool(Compare op, bool* out, const bool* a, const bool* b, const Nest<2>& nest, Index begin, Index end) {
  compare_nest(op, out, a, b, nest, begin, end);
}

void logical_nest(Logical op, bool* out, const bool* a, const bool* b, const Nest<2>& nest, Index begin, Index end) {
  const Index step_a = nest.strides[0].back(), step_b = nest.strides[1].back();
  for (Rows<2> rows(nest, begin, end); rows; begin += rows.count(), rows.next()) {
    const auto each = [&](auto f) HWY_ATTR { map_row(out + begin, a + rows.offset(0), step_a, b + rows.offset(1), step_b, rows.count(), f); };
    if (op == Logical::all_of)
      each([](bool x, bool y) HWY_ATTR { return static_cast<bool>(x & y); });
    else
      each([](bool x, bool y) HWY_ATTR { return static_cast<bool>(x | y); });
  }
}

template <class T, class F>
void test_nest(bool* out, const T* x, const Nest<1>& nest, Index begin, Index end, F f) {
  const Index step = nest.strides[0].back();
  for (Rows<1> rows(nest, begin, end); rows; begin += rows.count(), rows.next()) {
    const T* row = x + rows.offset(0);
    map_row(out + begin, row, step, row, Index{0}, rows.count(), [=](T v, T) HWY_ATTR { return f(v); });
  }
}

void isnan_f32(bool* out, const float* x, const Nest<1>& nest, Index begin, Index end) {
  test_nest(out, x, nest, begin, end, [](float v) HWY_ATTR { return v != v; });
}
void isnan_f64(bool* out, const double* x, const Nest<1>& nest, Index begin, Index end) {
  test_nest(out, x, nest, begin, end, [](double v) HWY_ATTR { return v != v; });
}
void isfinite_f32(bool* out, const float* x, const Nest<1>& nest, Index begin, Index end) {
  test_nest(out, x, nest, begin, end, [](float v) HWY_ATTR { return std::abs(v) <= std::numeric_limits<float>::max(); });
}
void isfinite_f64(bool* out, const double* x, const Nest<1>& nest, Index begin, Index end) {
  test_nest(out, x, nest, begin, end, [](double v) HWY_ATTR { return std::abs(v) <= std::numeric_limits<double>::max(); });
}
void not_bool(bool* out, const bool* x, const Nest<1>& nest, Index begin, Index end) {
  test_nest(out, x, nest, begin, end, [](bool v) HWY_ATTR { return !v; });
}

template <class T>
void where_row(T* out, const bool* cond, Index step_cond, const T* a, Index step_a, const T* b, Index step_b, Index n) {
  if (step_cond == 0) {
    const T* from = *cond ? a : b;
    const Index step = *cond ? step_a : step_b;
    if (from == out && step != 0) return;
    return map_row(out, from, step, from, Index{0}, n, [](T v, T) HWY_ATTR { return v; });
  }
  const hn::ScalableTag<T> d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  HWY_ALIGN T wide_a[hn::MaxLanes(d)];
  HWY_ALIGN T wide_b[hn::MaxLanes(d)];
  if (step_a == 0) hn::Store(hn::Set(d, *a), d, wide_a), a = wide_a;
  if (step_b == 0) hn::Store(hn::Set(d, *b), d, wide_b), b = wide_b;
  Index i = 0;
  for (; i + lanes <= n; i += lanes, a += step_a * lanes, b += step_b * lanes)
    hn::StoreU(hn::IfThenElse(load_mask(d, cond + i), hn::LoadU(d, a), hn::LoadU(d, b)), d, out + i);
  for (; i < n; ++i, a += step_a, b += step_b) out[i] = cond[i] ? *a : *b;
}

template <class T>
void where_nest(T* out, const bool* cond, const T* a, const T* b, const Nest<3>& nest, Index begin, Index end) {
  const Index step_cond = nest.strides[0].back(), step_a = nest.strides[1].back(), step_b = nest.strides[2].back();
  for (Rows<3> rows(nest, begin, end); rows; begin += rows.count(), rows.next())
    where_row(out + begin, cond + rows.offset(0), step_cond, a + rows.offset(1), step_a, b + rows.offset(2), step_b, rows.count());
}

void where_f32(float* out, const bool* cond, const float* a, const float* b, const Nest<3>& nest, Index begin, Index end) {
  where_nest(out, cond, a, b, nest, begin, end);
}
void where_f64(double* out, const bool* cond, const double* a, const double* b, const Nest<3>& nest, Index begin, Index end) {
  where_nest(out, cond, a, b, nest, begin, end);
}
void where_i64(Index* out, const bool* cond, const Index* a, const Index* b, const Nest<3>& nest, Index begin, Index end) {
  where_nest(out, cond, a, b, nest, begin, end);
}
void where_bool(bool* out, const bool* cond, const bool* a, const bool* b, const Nest<3>& nest, Index begin, Index end) {
  const auto bytes = [](const bool* p) HWY_ATTR { return reinterpret_cast<const std::uint8_t*>(p); };
  where_nest(reinterpret_cast<std::uint8_t*>(out), cond, bytes(a), bytes(b), nest, begin, end);
}

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(compare_f32);
HWY_EXPORT(compare_f64);
HWY_EXPORT(compare_i64);
HWY_EXPORT(compare_bool);
HWY_EXPORT(logical_nest);
HWY_EXPORT(isnan_f32);
HWY_EXPORT(isnan_f64);
HWY_EXPORT(isfinite_f32);
HWY_EXPORT(isfinite_f64);
HWY_EXPORT(not_bool);
HWY_EXPORT(where_f32);
HWY_EXPORT(where_f64);
HWY_EXPORT(where_i64);
HWY_EXPORT(where_bool);

constexpr Index grain = 32768;  // elements for a thread

template <class T>
auto compare_for() {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(compare_f32);
  else if constexpr (std::is_same_v<T, double>)
    return HWY_DYNAMIC_DISPATCH(compare_f64);
  else if constexpr (std::is_same_v<T, Index>)
    return HWY_DYNAMIC_DISPATCH(compare_i64);
  else
    return HWY_DYNAMIC_DISPATCH(compare_bool);
}

template <class T>
auto where_for() {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(where_f32);
  else if constexpr (std::is_same_v<T, double>)
    return HWY_DYNAMIC_DISPATCH(where_f64);
  else if constexpr (std::is_same_v<T, Index>)
    return HWY_DYNAMIC_DISPATCH(where_i64);
  else
    return HWY_DYNAMIC_DISPATCH(where_bool);
}

/// run(out, x, nest, begin, end)
template <class T, class F>
void test(F run, bool* out, Strided<T> x, const Dims& shape) {
  const Index n = count_of(shape);
  if (n == 0) return;
  const Walkable<T> operand(x, shape);
  const Nest<1> nest(shape, *operand);
  parallel_for(n, grain, [&](Index begin, Index end) { run(out, (*operand).data, nest, begin, end); });
}

/// run(out, a, b, nest, begin, end)
template <class T, class F>
void pairs(F run, bool* out, Strided<T> a, Strided<T> b, const Dims& shape) {
  const Index n = count_of(shape);
  if (n == 0) return;
  const Walkable<T> x(a, shape), y(b, shape);
  const Nest<2> nest(shape, *x, *y);
  parallel_for(n, grain, [&](Index begin, Index end) { run(out, (*x).data, (*y).data, nest, begin, end); });
}

}  // namespace

template <class T>
void compare(Compare op, bool* out, Strided<T> a, Strided<T> b, const Dims& shape) {
  const auto run = compare_for<T>();
  pairs([=](bool* o, const T* x, const T* y, const Nest<2>& nest, Index begin, Index end) { run(op, o, x, y, nest, begin, end); }, out, a, b, shape);
}
template void compare(Compare, bool*, Strided<float>, Strided<float>, const Dims&);
template void compare(Compare, bool*, Strided<double>, Strided<double>, const Dims&);
template void compare(Compare, bool*, Strided<Index>, Strided<Index>, const Dims&);
template void compare(Compare, bool*, Strided<bool>, Strided<bool>, const Dims&);

void logical(Logical op, bool* out, Strided<bool> a, Strided<bool> b, const Dims& shape) {
  const auto run = HWY_DYNAMIC_DISPATCH(logical_nest);
  pairs([=](bool* o, const bool* x, const bool* y, const Nest<2>& nest, Index begin, Index end) { run(op, o, x, y, nest, begin, end); }, out, a, b,
        shape);
}

void logical_not(bool* out, Strided<bool> x, const Dims& shape) { test(HWY_DYNAMIC_DISPATCH(not_bool), out, x, shape); }

template <class T>
void isnan(bool* out, Strided<T> x, const Dims& shape) {
  if constexpr (std::is_same_v<T, float>)
    test(HWY_DYNAMIC_DISPATCH(isnan_f32), out, x, shape);
  else
    test(HWY_DYNAMIC_DISPATCH(isnan_f64), out, x, shape);
}
template void isnan(bool*, Strided<float>, const Dims&);
template void isnan(bool*, Strided<double>, const Dims&);

template <class T>
void isfinite(bool* out, Strided<T> x, const Dims& shape) {
  if constexpr (std::is_same_v<T, float>)
    test(HWY_DYNAMIC_DISPATCH(isfinite_f32), out, x, shape);
  else
    test(HWY_DYNAMIC_DISPATCH(isfinite_f64), out, x, shape);
}
template void isfinite(bool*, Strided<float>, const Dims&);
template void isfinite(bool*, Strided<double>, const Dims&);

template <class T>
void where(T* out, Strided<bool> cond, Strided<T> a, Strided<T> b, const Dims& shape) {
  const Index n = count_of(shape);
  if (n == 0) return;
  const Walkable<bool> c(cond, shape);
  const Walkable<T> x(a, shape), y(b, shape);
  const Nest<3> nest(shape, *c, *x, *y);
  const auto run = where_for<T>();
  parallel_for(n, grain, [&](Index begin, Index end) { run(out, (*c).data, (*x).data, (*y).data, nest, begin, end); });
}
template void where(float*, Strided<bool>, Strided<float>, Strided<float>, const Dims&);
template void where(double*, Strided<bool>, Strided<double>, Strided<double>, const Dims&);
template void where(Index*, Strided<bool>, Strided<Index>, Strided<Index>, const Dims&);
template void where(bool*, Strided<bool>, Strided<bool>, Strided<bool>, const Dims&);

}  // namespace heed::kernels
#endif
