#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/attention_forward.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "attention-inl.h"
#include "attention.h"
#include "attention_call.h"
#include "attention_few-inl.h"

#ifndef HEED_ATTENTION_FORWARD_ONCE
#define HEED_ATTENTION_FORWARD_ONCE
namespace heed::kernels {
namespace {

/// Queries that go together, and the memory that they need.
struct Strip {
  Index width, scratch;
};

}  // namespace
}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
Strip strip_of(const ForwardCall<T>& x) {
  constexpr Index width = tile_columns<T>;
  const Index keys = std::min(key_block, x.sizes.Tk);
  const Index extra = (x.mask.has_added() || x.dropout.p > 0) ? 2 : 0;
  return {width, std::max(width * (x.sizes.d_k + x.sizes.d_v + (1 + extra) * keys), few_scratch<T>(x.sizes))};
}

/// Turns n scores of each lane, `width` apart, into exp(s - max), with the running maximum and sum brought up to date. Returns what earlier sums and
/// outputs were to be multiplied with; that has been done to `sum`.
template <class T>
HWY_INLINE Vector<T> soften(Index n, Index width, T* HWY_RESTRICT s, Vector<T>& max, Vector<T>& sum) {
  const Simd<T> d;
  Vector<T> top = max, other = max;  // two, since each waits for its own last step
  Index j = 0;
  for (; j + 2 <= n; j += 2) {
    top = hn::Max(hn::Load(d, s + j * width), top);
    other = hn::Max(hn::Load(d, s + (j + 1) * width), other);
  }
  if (j < n) top = hn::Max(hn::Load(d, s + j * width), top);
  top = hn::Max(top, other);
  const auto shift = hn::IfThenElse(hn::Eq(top, hn::Set(d, -infinity<T>)), hn::Zero(d), top);
  const auto fade = exp_of_negative(d, hn::Sub(max, shift));
  auto added = hn::Zero(d);
  for (j = 0; j < n; ++j) {
    const auto e = exp_of_negative(d, hn::Sub(hn::Load(d, s + j * width), shift));
    added = hn::Add(added, e);
    hn::Store(e, d, s + j * width);
  }
  sum = hn::MulAdd(sum, fade, added);
  max = top;
  return fade;
}

template <class T, int vectors>
void forward_strip(const ForwardCall<T>& x, Index p, Range queries, T* scratch) {
  const Simd<T> d;
  constexpr Index width = vectors * lanes<T>;
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  const Index count = queries.size();
  T* const q = scratch;
  T* const o = q + d_k * width;
  T* const s = o + d_v * width;
  T* const tile = s + std::min(key_block, Tk) * width;
  T* const rows = tile + std::min(key_block, Tk) * width;
  const Visibility visible(x.sizes, x.mask, p);
  const Range keys = visible.some_keys(queries), open = visible.all_keys(queries);
  const bool added = x.mask.has_added();

  Vector<T> max[vectors], sum[vectors];
  for (int v = 0; v < vectors; ++v) max[v] = hn::Set(d, -infinity<T>), sum[v] = hn::Zero(d);
  if (!keys.empty()) pack_queries(matrix(x.q, p) + queries.begin * x.q.row_stride, x.q.row_stride, count, d_k, x.scale, q, width);
  const Index step = equal_block(keys.size(), key_block);
  for (Index j = keys.begin; j < keys.end; j += step) {
    const TilePlace at{p, queries, {j, std::min(j + step, keys.end)}, width};
    const bool first = j == keys.begin;
    const T* k = matrix(x.k, p) + j * x.k.row_stride;
    const T* v = matrix(x.v, p) + j * x.v.row_stride;
    // The keys that lanes from vector c on have beyond those of the vector before; only a causal mask ends them apart.
    Index ends[vectors + 1] = {0};
    for (int c = 0; c < vectors; ++c)
      ends[c + 1] = intersect({0, at.keys.size()}, {0, visible.some_keys({queries.begin, queries.begin + (c + 1) * lanes<T>}).end - j}).size();
    ends[vectors] = at.keys.size();

    for (int c = 0; c < vectors; ++c) {
      const Index begin = ends[c], n = ends[c + 1] - begin, lane = c * lanes<T>;
      if (n > 0)
        multiply_tiles(n, width - lane, d_k, k + begin * x.k.row_stride, x.k.row_stride, Index{1}, q + lane, width, s + begin * width + lane, width,
                       false);
    }
    if (added) load_added(x.mask, at, rows, tile);
    if (added || !x.mask.slopes.empty() || j < open.begin || at.keys.end > open.end)
      mask_tile(x.mask, visible, at, Index{0}, added ? tile : nullptr, s);
    for (int c = 0; c < vectors; ++c) {
      const auto before = max[c];
      const auto fade = soften(ends[c + 1], width, s + c * lanes<T>, max[c], sum[c]);
      if (first || hn::AllTrue(d, hn::Eq(max[c], before))) continue;
      for (T* to = o + c * lanes<T>; to < o + d_v * width; to += width) hn::Store(hn::Mul(hn::Load(d, to), fade), d, to);
    }
    if (x.dropout.p > 0) {
      load_kept(x.dropout, x.sizes, at, rows, tile);
      for (Index e = 0; e < at.keys.size() * width; e += lanes<T>) hn::Store(hn::Mul(hn::Load(d, s + e), hn::Load(d, tile + e)), d, s + e);
    }
    for (int c = 0; c < vectors; ++c) {
      const Index begin = ends[c], n = ends[c + 1] - begin, lane = c * lanes<T>;
      if (n > 0 || (first && c == 0))
        multiply_tiles(d_v, width - lane, n, v + begin * x.v.row_stride, Index{1}, x.v.row_stride, s + begin * width + lane, width, o + lane, width,
                       !first || c > 0);
    }
  }

  for (int v = 0; v < vectors; ++v) {
    if (HWY_LIKELY(hn::AllFalse(d, hn::Eq(sum[v], hn::Zero(d))))) continue;
    HWY_ALIGN T sums[lanes<T>];
    hn::Store(sum[v], d, sums);
    for (Index lane = v * lanes<T>; lane < std::min(count, (v + 1) * lanes<T>); ++lane)
      sums[lane - v * lanes<T>] = sum_of_query(x.mask, visible, p, queries.begin + lane, sums[lane - v * lanes<T>]);
    sum[v] = hn::Load(d, sums);
  }

  const Index row = p * Tq + queries.begin;
  T* const out = matrix(x.out, p) + queries.begin * x.out.row_stride;
  for (int v = 0; x.rows.max && v < vectors; ++v) {
    const Lanes<T, true> valid(std::clamp(count - v * lanes<T>, Index{0}, lanes<T>));
    valid.store(max[v], x.rows.max + row + v * lanes<T>);
    valid.store(sum[v], x.rows.sum + row + v * lanes<T>);
  }
  if (keys.empty()) {
    for (Index i = 0; i < count; ++i) std::fill_n(out + i * x.out.row_stride, d_v, T{0});
    return;
  }
  for (int v = 0; v < vectors; ++v) {
    const auto dead = hn::Eq(sum[v], hn::Zero(d));
    const auto share = hn::Div(hn::Set(d, T{1}), sum[v]);
    for (Index c = 0; c < d_v; ++c) {
      T* const at = o + c * width + v * lanes<T>;
      hn::Store(hn::IfThenZeroElse(dead, hn::Mul(hn::Load(d, at), share)), d, at);
    }
  }
  copy_transposed(o, width, Index{1}, d_v, count, out, x.out.row_stride);
}

/// Strip number `task`, the last queries of a batch entry first: with a causal mask they have the most to do.
template <class T>
void forward_task(const ForwardCall<T>& x, Index task, T* scratch) {
  if (are_few<T>(x.sizes)) return forward_few(x, task, scratch);
  constexpr Index width = tile_columns<T>;
  const Index strips = (x.sizes.Tq + width - 1) / width, begin = (strips - 1 - task % strips) * width;
  const Range queries{begin, std::min(begin + width, x.sizes.Tq)};
  if (queries.size() > lanes<T>)
    forward_strip<T, tile_vectors>(x, task / strips, queries, scratch);
  else
    forward_strip<T, 1>(x, task / strips, queries, scratch);
}

/// Of the strip's scores, the weights, from the rows of a forward.
template <class T>
void weights_task(const ForwardCall<T>& x, Index task, T* scratch) {
  const Simd<T> d;
  constexpr Index width = tile_columns<T>;
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  const Index strips = (Tq + width - 1) / width, p = task / strips, begin = task % strips * width;
  const Range queries{begin, std::min(begin + width, Tq)};
  T* const q = scratch;
  T* const s = q + d_k * width;
  T* const tile = s + std::min(key_block, Tk) * width;
  T* const rows = tile + std::min(key_block, Tk) * width;
  const Visibility visible(x.sizes, x.mask, p);
  const Range keys = visible.some_keys(queries);
  const bool added = x.mask.has_added();
  T* const out = x.weights + (p * Tq + begin) * Tk;
  for (Index i = 0; i < queries.size(); ++i) {
    std::fill_n(out + i * Tk, keys.begin, T{0});
    std::fill_n(out + i * Tk + keys.end, Tk - keys.end, T{0});
  }
  if (keys.empty()) return;

  HWY_ALIGN T shift[width];
  HWY_ALIGN T share[width];
  load_softmax_rows<T>({x.rows.max, x.rows.sum}, p * Tq + begin, queries.size(), width, shift, share);
  const bool few = are_few<T>(x.sizes);
  if (!few) pack_queries(matrix(x.q, p) + begin * x.q.row_stride, x.q.row_stride, queries.size(), d_k, x.scale, q, width);
  const Index step = equal_block(keys.size(), key_block);
  for (Index j = keys.begin; j < keys.end; j += step) {
    const TilePlace at{p, queries, {j, std::min(j + step, keys.end)}, width};
    const Index n = at.keys.size();
    if (few)
      score_few_tile(x.q, x.k, x.sizes, x.scale, at, q, s);
    else
      multiply_tiles(n, width, d_k, matrix(x.k, p) + j * x.k.row_stride, x.k.row_stride, Index{1}, q, width, s, width, false);
    if (added) load_added(x.mask, at, rows, tile);
    mask_tile(x.mask, visible, at, Index{0}, added ? tile : nullptr, s);
    for (Index i = 0; i < width; i += lanes<T>) {
      const auto top = hn::Load(d, shift + i), factor = hn::Load(d, share + i);
      for (T* at_key = s + i; at_key < s + n * width; at_key += width)
        hn::Store(hn::Mul(exp_of_negative(d, hn::Sub(hn::Load(d, at_key), top)), factor), d, at_key);
    }
    copy_transposed(s, width, Index{1}, n, queries.size(), out + j, Tk);
  }
}

Strip StripF32(const ForwardCall<float>& x) { return strip_of(x); }
Strip StripF64(const ForwardCall<double>& x) { return strip_of(x); }
void ForwardF32(const ForwardCall<float>& x, Index task, float* scratch) { forward_task(x, task, scratch); }
void ForwardF64(const ForwardCall<double>& x, Index task, double* scratch) { forward_task(x, task, scratch); }
void WeightsF32(const ForwardCall<float>& x, Index task, float* scratch) { weights_task(x, task, scratch); }
void WeightsF64(const ForwardCall<double>& x, Index task, double* scratch) { weights_task(x, task, scratch); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(StripF32);
HWY_EXPORT(StripF64);
HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardF64);
HWY_EXPORT(WeightsF32);
HWY_EXPORT(WeightsF64);

template <class T>
Strip strip_of(const ForwardCall<T>& x) {
  if constexpr (sizeof(T) == 4)
    return HWY_DYNAMIC_DISPATCH(StripF32)(x);
  else
    return HWY_DYNAMIC_DISPATCH(StripF64)(x);
}

/// Multiplications that pay for one more thread.
constexpr Index thread_work = 1 << 20;

template <class T, class F>
void run_strips(const ForwardCall<T>& x, const F& run) {
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  const Strip strip = strip_of(x);
  const Index tasks = batch * ((Tq + strip.width - 1) / strip.width);
  if (tasks == 0) return;
  // In double, which cannot overflow.
  const double work = static_cast<double>(batch * Tq) * static_cast<double>(Tk) * static_cast<double>(d_k + d_v + 8) * (x.mask.causal ? 0.5 : 1.0);
  const int threads = threads_for(std::min(tasks, static_cast<Index>(std::min(work / thread_work, 1e6))), 1);
  run_tasks<T>(tasks, threads, strip.scratch, run);
}

}  // namespace

template <class T>
void attention(const AttentionSizes& sizes, Batched<const T> q, Batched<const T> k, Batched<const T> v, T scale, const AttentionMask<T>& mask,
               const AttentionDropout& dropout, Batched<T> out, SoftmaxRows<T> rows) {
  const ForwardCall<T> x{sizes, q, k, v, scale, mask, dropout, out, rows};
  run_strips(x, [&](Index task, T* scratch) {
    if constexpr (sizeof(T) == 4)
      HWY_DYNAMIC_DISPATCH(ForwardF32)(x, task, scratch);
    else
      HWY_DYNAMIC_DISPATCH(ForwardF64)(x, task, scratch);
  });
}
template void attention(const AttentionSizes&, Batched<const float>, Batched<const float>, Batched<const float>, float, const AttentionMask<float>&,
                        const AttentionDropout&, Batched<float>, SoftmaxRows<float>);
template void attention(const AttentionSizes&, Batched<const double>, Batched<const double>, Batched<const double>, double,
                        const AttentionMask<double>&, const AttentionDropout&, Batched<double>, SoftmaxRows<double>);

template <class T>
void attention_weights(const AttentionSizes& sizes, Batched<const T> q, Batched<const T> k, T scale, const AttentionMask<T>& mask,
                       SoftmaxRows<const T> rows, T* weights) {
  const AttentionDropout none;
  const ForwardCall<T> x{sizes, q, k, {}, scale, mask, none, {}, {const_cast<T*>(rows.max), const_cast<T*>(rows.sum)}, weights};
  run_strips(x, [&](Index task, T* scratch) {
    if constexpr (sizeof(T) == 4)
      HWY_DYNAMIC_DISPATCH(WeightsF32)(x, task, scratch);
    else
      HWY_DYNAMIC_DISPATCH(WeightsF64)(x, task, scratch);
  });
}
template void attention_weights(const AttentionSizes&, Batched<const float>, Batched<const float>, float, const AttentionMask<float>&,
                                SoftmaxRows<const float>, float*);
template void attention_weights(const AttentionSizes&, Batched<const double>, Batched<const double>, double, const AttentionMask<double>&,
                                SoftmaxRows<const double>, double*);

}  // namespace heed::kernels
#endif
