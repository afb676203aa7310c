#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/reduce_search.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "parallel.h"
#include "reduce.h"
#include "row-inl.h"
#include "walk.h"

// Reductions that look for an element, or count: argmax, argmin, all, any, and sums of whole numbers.

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

/// The best element so far, counted by its place in the reduced nest. Smallest elements are looked for as largest of the negated ones.
template <class T>
struct Best {
  T value;
  Index index;
};

/// Whether v goes before what was found earlier: NaN before all numbers.
template <class T>
bool is_better(T v, T than) {
  return v > than || (v != v && than == than);
}

/// A contiguous row, whose first element has number `first`.
template <class T>
void search_row(Best<T>& best, const T* x, Index n, Index first, T sign) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, sign), lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  constexpr Index stretch = 1024;  // read a second time when it has something better, then from the first cache
  for (Index begin = 0; begin < n && best.value == best.value; begin += stretch) {
    const Index count = std::min(stretch, n - begin);
    const T* row = x + begin;
    auto top = lowest, nan = hn::Zero(d);
    for_row(d, count, [&](auto at) HWY_ATTR {
      const auto v = at.keep(hn::Mul(at(row), factor), lowest);
      top = hn::Max(top, v);
      nan = hn::IfThenElse(hn::Eq(v, v), nan, v);
    });
    const bool has_nan = !hn::AllTrue(d, hn::Eq(nan, nan));
    if (!has_nan && !(hn::GetLane(hn::MaxOfLanes(d, top)) > best.value)) continue;
    for (Index i = 0; i < count; ++i)
      if (const T v = row[i] * sign; is_better(v, best.value)) best = {v, first + begin + i};
  }
}

void search_row(Best<Index>& best, const Index* x, Index n, Index first, Index sign) {
  for (Index i = 0; i < n; ++i)
    if (const Index v = sign < 0 ? ~x[i] : x[i]; v > best.value) best = {v, first + i};  // ~x is -x - 1, which cannot overflow
}

template <class T>
T ordered(T x, T sign) {
  if constexpr (std::is_same_v<T, Index>)
    return sign < 0 ? ~x : x;
  else
    return x * sign;
}

/// Each output [begin, end) by itself.
template <class T>
void search_each(Index* out, const T* x, const Nest<1>& kept, const Nest<1>& reduced, T sign, Index begin, Index end) {
  const Index n = count_of(reduced.shape), step = reduced.strides[0].back(), kept_step = kept.strides[0].back();
  for (Rows<1> outputs(kept, begin, end); outputs; outputs.next()) {
    for (Index j = 0; j < outputs.count(); ++j) {
      const T* from = x + outputs.offset(0) + j * kept_step;
      Best<T> best{ordered(*from, sign), 0};
      Index first = 0;
      for (Rows<1> rows(reduced, 0, n); rows; first += rows.count(), rows.next()) {
        const T* row = from + rows.offset(0);
        if (step == 1)
          search_row(best, row, rows.count(), first, sign);
        else
          for (Index i = 0; i < rows.count(); ++i)
            if (const T v = ordered(row[i * step], sign); is_better(v, best.value)) best = {v, first + i};
      }
      *out++ = best.index;
    }
  }
}

/// Outputs [begin, end) whose elements are neighbors, side by side.
template <class T>
void search_across(Index* out, const T* x, const Nest<1>& kept, const Nest<1>& reduced, T sign, Index begin, Index end) {
  constexpr Index block = 256;
  const Index n = count_of(reduced.shape), step = reduced.strides[0].back();
  T values[block];
  for (Rows<1> outputs(kept, begin, end); outputs; outputs.next()) {
    for (Index column = 0; column < outputs.count(); column += block) {
      const Index width = std::min(block, outputs.count() - column);
      const T* from = x + outputs.offset(0) + column;
      for (Index j = 0; j < width; ++j) values[j] = ordered(from[j], sign), out[j] = 0;
      Index number = 0;
      for (Rows<1> rows(reduced, 0, n); rows; rows.next()) {
        for (Index i = 0; i < rows.count(); ++i, ++number) {
          const T* row = from + rows.offset(0) + i * step;
          for (Index j = 0; j < width; ++j) {
            const T v = ordered(row[j], sign);
            const bool better = is_better(v, values[j]);
            values[j] = better ? v : values[j];
            out[j] = better ? number : out[j];
          }
        }
      }
      out += width;
    }
  }
}

template <class T>
void search(Index* out, const T* x, const Nest<1>& kept, const Nest<1>& reduced, T sign, Index begin, Index end) {
  if (kept.strides[0].back() == 1 && reduced.strides[0].back() != 1)
    search_across(out + begin, x, kept, reduced, sign, begin, end);
  else
    search_each(out + begin, x, kept, reduced, sign, begin, end);
}

void search_f32(Index* out, const float* x, const Nest<1>& kept, const Nest<1>& reduced, int sign, Index begin, Index end) {
  search(out, x, kept, reduced, static_cast<float>(sign), begin, end);
}
void search_f64(Index* out, const double* x, const Nest<1>& kept, const Nest<1>& reduced, int sign, Index begin, Index end) {
  search(out, x, kept, reduced, static_cast<double>(sign), begin, end);
}
void search_i64(Index* out, const Index* x, const Nest<1>& kept, const Nest<1>& reduced, int sign, Index begin, Index end) {
  search(out, x, kept, reduced, static_cast<Index>(sign), begin, end);
}

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(search_f32);
HWY_EXPORT(search_f64);
HWY_EXPORT(search_i64);

constexpr Index grain = 32768;  // elements for a thread

/// +1 for the largest, -1 for the smallest.
template <class T>
void search(Index* out, const T* x, const Axes& kept, const Axes& reduced, int sign) {
  const Index outputs = count_of(kept.shape), n = count_of(reduced.shape);
  if (outputs == 0) return;
  const Nest<1> outer(kept.shape, Strided<T>{x, kept.strides}), inner(reduced.shape, Strided<T>{x, reduced.strides});
  parallel_for(outputs, std::max<Index>(grain / n, 1), [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, Index>)
      HWY_DYNAMIC_DISPATCH(search_i64)(out, x, outer, inner, sign, begin, end);
    else
      pick<T>(HWY_DYNAMIC_DISPATCH(search_f32), HWY_DYNAMIC_DISPATCH(search_f64))(out, x, outer, inner, sign, begin, end);
  });
}

/// out = f(... f(f(start, x0), x1) ...) over each reduced nest.
template <class T, class F>
void fold(T* out, const T* x, const Axes& kept, const Axes& reduced, T start, F f) {
  const Index outputs = count_of(kept.shape), n = count_of(reduced.shape);
  if (outputs == 0) return;
  if (n == 0) return fill(out, start, outputs);
  const Nest<1> outer(kept.shape, Strided<T>{x, kept.strides}), inner(reduced.shape, Strided<T>{x, reduced.strides});
  const Index step = inner.strides[0].back(), kept_step = outer.strides[0].back();
  parallel_for(outputs, std::max<Index>(grain / n, 1), [&](Index begin, Index end) {
    for (Rows<1> rows(outer, begin, end); rows; begin += rows.count(), rows.next()) {
      const T* from = x + rows.offset(0);
      T* to = out + begin;
      if (kept_step == 1 && step != 1) {
        std::fill_n(to, rows.count(), start);
        for (Rows<1> terms(inner, 0, n); terms; terms.next())
          for (Index i = 0; i < terms.count(); ++i) {
            const T* row = from + terms.offset(0) + i * step;
            for (Index j = 0; j < rows.count(); ++j) to[j] = f(to[j], row[j]);
          }
        continue;
      }
      for (Index j = 0; j < rows.count(); ++j) {
        T value = start;
        for (Rows<1> terms(inner, 0, n); terms; terms.next()) {
          const T* row = from + j * kept_step + terms.offset(0);
          if (step == 1)
            for (Index i = 0; i < terms.count(); ++i) value = f(value, row[i]);
          else
            for (Index i = 0; i < terms.count(); ++i) value = f(value, row[i * step]);
        }
        to[j] = value;
      }
    }
  });
}

}  // namespace

template <class T>
void argmax(Index* out, const T* x, const Axes& kept, const Axes& reduced) {
  search(out, x, kept, reduced, 1);
}
template <class T>
void argmin(Index* out, const T* x, const Axes& kept, const Axes& reduced) {
  search(out, x, kept, reduced, -1);
}

template void argmax(Index*, const float*, const Axes&, const Axes&);
template void argmax(Index*, const double*, const Axes&, const Axes&);
template void argmax(Index*, const Index*, const Axes&, const Axes&);
template void argmin(Index*, const float*, const Axes&, const Axes&);
template void argmin(Index*, const double*, const Axes&, const Axes&);
template void argmin(Index*, const Index*, const Axes&, const Axes&);

void all(bool* out, const bool* x, const Axes& kept, const Axes& reduced) {
  fold(out, x, kept, reduced, true, [](bool a, bool b) { return static_cast<bool>(a & b); });
}
void any(bool* out, const bool* x, const Axes& kept, const Axes& reduced) {
  fold(out, x, kept, reduced, false, [](bool a, bool b) { return static_cast<bool>(a | b); });
}
void sum(Index* out, const Index* x, const Axes& kept, const Axes& reduced) {
  fold(out, x, kept, reduced, Index{0},
       [](Index a, Index b) { return static_cast<Index>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b)); });
}

}  // namespace heed::kernels
#endif
