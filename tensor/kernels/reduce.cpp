#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/reduce.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "parallel.h"
#include "reduce.h"
#include "row-inl.h"
#include "walk.h"

// Sums of floats. Work is cut into pieces by the sizes alone, never by the number of threads: that keeps the bits.

#ifndef HEED_REDUCE_ONCE
#define HEED_REDUCE_ONCE
namespace heed::kernels {
namespace {

/// Makes outputs from sums.
template <class T>
struct Finish {
  const T* x;
  const Nest<1>&kept, &reduced;
  double times;  ///< how often each element counts
  double factor;

  /// An output, to be completed.
  T operator()(double sum) const { return static_cast<T>(times * sum); }
  /// Scaled such that no sum of as many elements as there are addresses overflows, and with what each addition loses put back: Kahan, 1965.
  T again(Index output) const {
    const Rows<1> at(kept, output, output + 1);
    const Index step = reduced.strides[0].back();
    double sum = 0, lost = 0;
    for (Rows<1> rows(reduced, 0, count_of(reduced.shape)); rows; rows.next()) {
      const T* row = x + at.offset(0) + rows.offset(0);
      for (Index j = 0; j < rows.count(); ++j) {
        const double term = 0x1p-64 * static_cast<double>(row[j * step]) - lost, next = sum + term;
        lost = std::isfinite(next) ? next - sum - term : 0, sum = next;
      }
    }
    return static_cast<T>(times * factor * sum * 0x1p64);
  }
};

}  // namespace
}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace {

template <class T>
double sum_flat(const T* x, Index n) {
  return sum_row(hn::ScalableTag<T>(), n, [=](auto at) HWY_ATTR { return at(x); });
}

/// Elements [begin, end) of the reduced nest at x, whose innermost loop is contiguous.
template <class T>
double sum_part(const T* x, const Nest<1>& reduced, Index begin, Index end) {
  double total = 0;
  for (Rows<1> rows(reduced, begin, end); rows; rows.next()) total += sum_flat(x + rows.offset(0), rows.count());
  return total;
}

/// `count` outputs, the first of which is number `first`: times the factor, and summed again where they overflowed.
template <class T>
void complete(T* out, const Finish<T>& finish, Index first, Index count) {
  if (finish.factor != 1)
    for (Index i = 0; i < count; ++i) out[i] *= static_cast<T>(finish.factor);
  int overflowed = 0;  // not a bool, which would keep the compiler from using vectors
  for (Index i = 0; i < count; ++i) overflowed |= !(std::abs(out[i]) <= std::numeric_limits<T>::max());
  for (Index i = 0; overflowed && i < count; ++i)
    if (!std::isfinite(out[i])) out[i] = finish.again(first + i);
}

/// Outputs [begin, end) from the sums over all of the reduced nest.
template <class T>
void sum_along(T* out, const Finish<T>& finish, Index begin, Index end) {
  const Nest<1>&kept = finish.kept, &reduced = finish.reduced;
  const Index n = count_of(reduced.shape), step = kept.strides[0].back();
  const bool one_row = reduced.shape.size() == 1;
  T* to = out + begin;
  for (Rows<1> rows(kept, begin, end); rows; rows.next()) {
    const T* row = finish.x + rows.offset(0);
    for (Index j = 0; j < rows.count(); ++j, row += step) *to++ = finish(one_row ? sum_flat(row, n) : sum_part(row, reduced, 0, n));
  }
  complete(out + begin, finish, begin, end - begin);
}

/// Columns that are summed together: their sums stay in the first cache.
constexpr Index block = 256;
/// Rows that are summed in T before the sum goes on in double.
constexpr Index stretch = 32;

/// totals[j] = sum of x[offset of row + j] over rows [begin, end) of the reduced nest, for `width` columns.
template <class T>
void sum_across(double* totals, const T* x, Index width, const Nest<1>& reduced, Index begin, Index end) {
  const hn::ScalableTag<T> d;
  const Index step = reduced.strides[0].back();
  HWY_ALIGN T sums[block];
  std::fill_n(totals, width, 0.0);
  for (Rows<1> rows(reduced, begin, end); rows; rows.next()) {
    for (Index first = 0; first < rows.count(); first += stretch) {
      const Index last = std::min(first + stretch, rows.count());
      const T* row = x + rows.offset(0) + first * step;
      std::fill_n(sums, width, T{});
      Index r = first;
      for (; r + 4 <= last; r += 4, row += 4 * step)
        for_row(d, width, [=, &sums](auto at) HWY_ATTR {
          const auto four = hn::Add(hn::Add(at(row), at(row + step)), hn::Add(at(row + 2 * step), at(row + 3 * step)));
          at.store(hn::Add(at(sums), four), sums);
        });
      for (; r < last; ++r, row += step) for_row(d, width, [=, &sums](auto at) HWY_ATTR { at.store(hn::Add(at(sums), at(row)), sums); });
      for (Index j = 0; j < width; ++j) totals[j] += static_cast<double>(sums[j]);
    }
  }
}

double flat_f32(const float* x, Index n) { return sum_flat(x, n); }
double flat_f64(const double* x, Index n) { return sum_flat(x, n); }
double part_f32(const float* x, const Nest<1>& reduced, Index begin, Index end) { return sum_part(x, reduced, begin, end); }
double part_f64(const double* x, const Nest<1>& reduced, Index begin, Index end) { return sum_part(x, reduced, begin, end); }
void along_f32(float* out, const Finish<float>& finish, Index begin, Index end) { sum_along(out, finish, begin, end); }
void along_f64(double* out, const Finish<double>& finish, Index begin, Index end) { sum_along(out, finish, begin, end); }
void complete_f32(float* out, const Finish<float>& finish, Index first, Index count) { complete(out, finish, first, count); }
void complete_f64(double* out, const Finish<double>& finish, Index first, Index count) { complete(out, finish, first, count); }
void across_f32(double* totals, const float* x, Index width, const Nest<1>& reduced, Index begin, Index end) {
  sum_across(totals, x, width, reduced, begin, end);
}
void across_f64(double* totals, const double* x, Index width, const Nest<1>& reduced, Index begin, Index end) {
  sum_across(totals, x, width, reduced, begin, end);
}

}  // namespace
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(flat_f32);
HWY_EXPORT(flat_f64);
HWY_EXPORT(part_f32);
HWY_EXPORT(part_f64);
HWY_EXPORT(along_f32);
HWY_EXPORT(along_f64);
HWY_EXPORT(across_f32);
HWY_EXPORT(across_f64);
HWY_EXPORT(complete_f32);
HWY_EXPORT(complete_f64);

template <class T>
auto complete() {
  return pick<T>(HWY_DYNAMIC_DISPATCH(complete_f32), HWY_DYNAMIC_DISPATCH(complete_f64));
}

constexpr Index grain = 32768;  // elements for a thread
constexpr Index chunk = 16384;  // elements of one output that are summed in one go

/// Repeated elements need not be added one by one: takes the dims of stride 0 out and returns how often each element counts.
Index take_repeats(Axes& reduced) {
  Index times = 1;
  for (std::size_t d = reduced.shape.size(); d-- > 0;) {
    if (reduced.strides[d] != 0) continue;
    times *= reduced.shape[d];
    reduced.shape.erase(d), reduced.strides.erase(d);
  }
  return times;
}

/// Sums in any order, so in the one that walks memory upwards.
void sort_by_stride(Axes& axes) {
  for (std::size_t i = 1; i < axes.shape.size(); ++i)
    for (std::size_t j = i; j > 0 && axes.strides[j - 1] < axes.strides[j]; --j) {
      std::swap(axes.shape[j - 1], axes.shape[j]);
      std::swap(axes.strides[j - 1], axes.strides[j]);
    }
}

/// The innermost reduced loop is contiguous: each output is the sum of whole rows.
template <class T>
void sum_rows(T* out, const Finish<T>& finish) {
  const Nest<1>&kept = finish.kept, &reduced = finish.reduced;
  const Index outputs = count_of(kept.shape), n = count_of(reduced.shape), chunks = (n + chunk - 1) / chunk;
  if (chunks == 1) {
    const auto run = pick<T>(HWY_DYNAMIC_DISPATCH(along_f32), HWY_DYNAMIC_DISPATCH(along_f64));
    parallel_for(outputs, std::max<Index>(grain / n, 1), [&](Index begin, Index end) { run(out, finish, begin, end); });
    return;
  }
  const auto run = pick<T>(HWY_DYNAMIC_DISPATCH(part_f32), HWY_DYNAMIC_DISPATCH(part_f64));
  const Scratch<double> partials(outputs * chunks);
  double* const sums = partials.data();
  parallel_for(outputs * chunks, grain / chunk, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index output = i / chunks, first = i % chunks * chunk;
      const Rows<1> at(kept, output, output + 1);
      sums[i] = run(finish.x + at.offset(0), reduced, first, std::min(first + chunk, n));
    }
  });
  for (Index i = 0; i < outputs; ++i) {
    double total = 0;
    for (Index c = 0; c < chunks; ++c) total += sums[i * chunks + c];
    out[i] = finish(total);
  }
  complete<T>()(out, finish, 0, outputs);
}

constexpr Index block = 256;  // columns at a time, as in the kernel

/// The innermost kept loop is contiguous: blocks of neighboring outputs are summed side by side.
template <class T>
void sum_columns(T* out, const Finish<T>& finish) {
  const Nest<1>&kept = finish.kept, &reduced = finish.reduced;
  const auto run = pick<T>(HWY_DYNAMIC_DISPATCH(across_f32), HWY_DYNAMIC_DISPATCH(across_f64));
  const Index width = kept.shape.back(), outputs = count_of(kept.shape), n = count_of(reduced.shape);
  const Index blocks = (width + block - 1) / block;
  const Index rows_a_chunk = std::max<Index>(128, 4 * chunk / std::min(width, block)), chunks = (n + rows_a_chunk - 1) / rows_a_chunk;
  const Index tasks = outputs / width * blocks * chunks;
  const Index work = std::min(width, block) * std::min(n, rows_a_chunk);
  // Task i: chunk i % chunks of block i / chunks % blocks of kept row i / chunks / blocks.
  const auto each = [&](auto f) {
    parallel_for(tasks, std::max<Index>(grain / std::max<Index>(work, 1), 1), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index column = i / chunks % blocks * block, row = i / chunks / blocks, c = i % chunks;
        const Rows<1> at(kept, row * width + column, row * width + column + 1);
        const Index count = std::min(block, width - column);
        f(c, row * width + column, count, finish.x + at.offset(0), c * rows_a_chunk, std::min((c + 1) * rows_a_chunk, n));
      }
    });
  };
  if (chunks == 1) {
    each([&](Index, Index first, Index count, const T* from, Index begin, Index end) {
      double totals[block];
      run(totals, from, count, reduced, begin, end);
      for (Index j = 0; j < count; ++j) out[first + j] = finish(totals[j]);
      complete<T>()(out + first, finish, first, count);
    });
    return;
  }
  const Scratch<double> partials(outputs * chunks);
  double* const sums = partials.data();
  each([&](Index c, Index first, Index count, const T* from, Index begin, Index end) {
    run(sums + c * outputs + first, from, count, reduced, begin, end);
  });
  parallel_for(outputs, std::max<Index>(grain / chunks, 1), [&](Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      double total = 0;
      for (Index c = 0; c < chunks; ++c) total += sums[c * outputs + j];
      out[j] = finish(total);
    }
    complete<T>()(out + begin, finish, begin, end - begin);
  });
}

}  // namespace

template <class T>
void sum(T* out, const T* x, const Axes& kept, const Axes& reduced, double factor) {
  const Index outputs = count_of(kept.shape), n = count_of(reduced.shape);
  if (outputs == 0) return;
  if (n == 0) return fill(out, static_cast<T>(0 * factor), outputs);
  if (outputs == 1 && n <= chunk && is_row_major(reduced.strides, reduced.shape)) {
    const double total = pick<T>(HWY_DYNAMIC_DISPATCH(flat_f32), HWY_DYNAMIC_DISPATCH(flat_f64))(x, n);
    const T y = static_cast<T>(total) * static_cast<T>(factor);
    if (std::isfinite(y)) {
      *out = y;
      return;
    }
  }
  Axes loops = reduced;
  const double times = static_cast<double>(take_repeats(loops));
  sort_by_stride(loops);
  Nest<1> outer(kept.shape, Strided<T>{x, kept.strides}), inner(loops.shape, Strided<T>{x, loops.strides});
  if (inner.strides[0].back() <= 1) return sum_rows(out, Finish<T>{x, outer, inner, times, factor});
  if (outer.strides[0].back() == 1) return sum_columns(out, Finish<T>{x, outer, inner, times, factor});
  // Neither lies in memory as it is walked: a row-major copy does.
  Dims shape = outer.shape, strides = outer.strides[0];
  for (std::size_t d = 0; d < inner.shape.size(); ++d) shape.push_back(inner.shape[d]), strides.push_back(inner.strides[0][d]);
  const Scratch<T> copied(count_of(shape));
  copy(copied.data(), detail::row_major_strides(shape), Strided<T>{x, strides}, shape);
  const Index row = count_of(inner.shape);
  const Nest<1> rows({outputs}, Strided<T>{x, {row}}), columns({row}, Strided<T>{x, {1}});
  sum_rows(out, Finish<T>{copied.data(), rows, columns, times, factor});
}

template void sum(float*, const float*, const Axes&, const Axes&, double);
template void sum(double*, const double*, const Axes&, const Axes&, double);

}  // namespace heed::kernels
#endif
