// Attention for so few queries, one token's for instance, that lanes cannot be filled with them: lanes run along keys and values instead, each of
// which is read once. Compiled once for every SIMD target.

#if defined(HEED_ATTENTION_FEW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_ATTENTION_FEW_INL_H
#undef HEED_ATTENTION_FEW_INL_H
#else
#define HEED_ATTENTION_FEW_INL_H
#endif

#include "attention-inl.h"
#include "gemm_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {

/// Up to which number of queries this is the faster way.
template <class T>
inline constexpr Index few_queries = std::max<Index>(lanes<T> / 4, 1);

template <class T>
bool are_few(const AttentionSizes& sizes) {
  return sizes.Tq <= few_queries<T>;
}

template <class T>
Index few_scratch(const AttentionSizes& sizes) {
  return few_queries<T> * (sizes.d_k + 2 * key_block);
}

/// All queries of batch entry p, scaled, in rows of `out`.
template <class T>
HWY_INLINE void scale_few(const Batched<const T>& q, Index p, const AttentionSizes& sizes, T scale, T* out) {
  for (Index i = 0; i < sizes.Tq; ++i)
    for (Index c = 0; c < sizes.d_k; ++c) out[i * sizes.d_k + c] = scale * matrix(q, p)[i * q.row_stride + c];
}

/// Scores of the scaled queries: query i and key j of the tile at s[i * query_step + j * key_step]. Outputs, weights and gradients of few queries all
/// come from here: summed in another order scores are rounded otherwise, and exp(s - max) turns a difference of large scores into a factor.
template <class T>
HWY_INLINE void score_few(const T* q, const Batched<const T>& k, const AttentionSizes& sizes, const TilePlace& at, T* s, Index query_step,
                          Index key_step) {
  const T* keys = matrix(k, at.p) + at.keys.begin * k.row_stride;
  multiply_dots(Few<T>{sizes.Tq, at.keys.size(), sizes.d_k, {q, sizes.d_k, 1}, {keys, 1, k.row_stride}, s, query_step, key_step, false});
}

/// The same as a tile, keys down: scores of lanes without a query are 0. `rows` has few_queries * d_k elements.
template <class T>
HWY_INLINE void score_few_tile(const Batched<const T>& q, const Batched<const T>& k, const AttentionSizes& sizes, T scale, const TilePlace& at,
                               T* HWY_RESTRICT rows, T* HWY_RESTRICT s) {
  std::fill_n(s, at.keys.size() * at.width, T{0});
  scale_few(q, at.p, sizes, scale, rows);
  score_few(rows, k, sizes, at, s, Index{1}, at.width);
}

/// Adds to the scores of query i of keys [j.begin, j.end), and fills up with forbidden ones to whole vectors. `added` is null or a row of added_rows.
template <class T>
HWY_INLINE void mask_row(const AttentionMask<T>& mask, const Visibility& visible, Index p, Index i, Range j, const T* added, T* s) {
  const Simd<T> d;
  const Index n = j.size();
  if (!mask.slopes.empty()) {
    const auto slope = hn::Set(d, mask.slopes[static_cast<std::size_t>(p)]);
    const Index distance = j.begin - i - visible.offset();
    for (Index e = 0; e < n; e += lanes<T>)
      hn::Store(hn::MulAdd(hn::Abs(hn::Iota(d, static_cast<T>(distance + e))), slope, hn::Load(d, s + e)), d, s + e);
  }
  if (added)
    for (Index e = 0; e < n; ++e) s[e] = added[e] == -infinity<T> ? added[e] : s[e] + added[e];
  const Range seen = intersect(j, visible.some_keys({i, i + 1}));
  std::fill(s, s + (seen.begin - j.begin), -infinity<T>);
  std::fill(s + (seen.end - j.begin), s + (n + lanes<T> - 1) / lanes<T> * lanes<T>, -infinity<T>);
}

/// As soften, for the scores of one query. Returns the factor for what came before.
template <class T>
HWY_INLINE T soften_row(Index n, T* s, T& max, T& sum) {
  const Simd<T> d;
  auto top = hn::Set(d, max);
  for (Index e = 0; e < n; e += lanes<T>) top = hn::Max(hn::Load(d, s + e), top);
  top = hn::MaxOfLanes(d, top);
  const auto shift = hn::IfThenElse(hn::Eq(top, hn::Set(d, -infinity<T>)), hn::Zero(d), top);
  const T fade = hn::GetLane(exp_of_negative(d, hn::Sub(hn::Set(d, max), shift)));
  auto added = hn::Zero(d);
  for (Index e = 0; e < n; e += lanes<T>) {
    const auto y = exp_of_negative(d, hn::Sub(hn::Load(d, s + e), shift));
    added = hn::Add(added, y);
    hn::Store(y, d, s + e);
  }
  sum = sum * fade + hn::GetLane(hn::SumOfLanes(d, added));
  max = hn::GetLane(top);
  return fade;
}

/// All queries of batch entry p.
template <class T>
void forward_few(const ForwardCall<T>& x, Index p, T* scratch) {
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  T* const s = scratch;
  T* const other = s + few_queries<T> * key_block;
  T* const q = other + few_queries<T> * key_block;
  T max[few_queries<T>], sum[few_queries<T>];
  scale_few(x.q, p, x.sizes, x.scale, q);
  for (Index i = 0; i < Tq; ++i) {
    max[i] = -infinity<T>, sum[i] = 0;
    std::fill_n(matrix(x.out, p) + i * x.out.row_stride, d_v, T{0});
  }
  const Visibility visible(x.sizes, x.mask, p);
  const Range keys = visible.some_keys({0, Tq});
  for (Index j = keys.begin; j < keys.end; j += key_block) {
    const TilePlace at{p, {0, Tq}, {j, std::min(j + key_block, keys.end)}, 0};
    const Index n = at.keys.size();
    const T* v = matrix(x.v, p) + j * x.v.row_stride;
    score_few(q, x.k, x.sizes, at, s, key_block, Index{1});
    const bool added = x.mask.has_added();
    const Index step = added && added_rows(x.mask, at, other) > 1 ? n : 0;
    for (Index i = 0; i < Tq; ++i) mask_row(x.mask, visible, p, i, at.keys, added ? other + i * step : nullptr, s + i * key_block);
    if (x.dropout.p > 0) kept_rows(x.dropout, x.sizes, at, other);
    for (Index i = 0; i < Tq; ++i) {
      T* const weights = s + i * key_block;
      T* const out = matrix(x.out, p) + i * x.out.row_stride;
      const T fade = soften_row(n, weights, max[i], sum[i]);
      if (fade != 1)
        for (Index c = 0; c < d_v; ++c) out[c] *= fade;
      if (x.dropout.p > 0)
        for (Index e = 0; e < n; ++e) weights[e] *= other[i * n + e];
      add_rows(Few<T>{1, d_v, n, {weights, 0, 1}, {v, x.v.row_stride, 1}, out, 0, 1, true});
    }
  }
  for (Index i = 0; i < Tq; ++i) {
    sum[i] = sum_of_query(x.mask, visible, p, i, sum[i]);
    T* const out = matrix(x.out, p) + i * x.out.row_stride;
    for (Index c = 0; c < d_v; ++c) out[c] = sum[i] == 0 ? T{0} : out[c] / sum[i];
    if (x.rows.max) x.rows.max[p * Tq + i] = max[i], x.rows.sum[p * Tq + i] = sum[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#endif
