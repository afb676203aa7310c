// What forward and backward do with a tile of scores. Compiled once for every SIMD target.
//
// Tiles lie transposed, keys down and queries across: a vector holds one key's scores for neighboring queries, so that the maximum and the sum of a
// query's row run down a lane, and both products read keys and values where they lie, one number at a time. Only queries are copied.

#if defined(HEED_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_ATTENTION_INL_H
#undef HEED_ATTENTION_INL_H
#else
#define HEED_ATTENTION_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "attention_call.h"
#include "gemm.h"
#include "gemm_tile-inl.h"
#include "math-inl.h"
#include "partial-inl.h"
#include "philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {

template <class T>
inline constexpr T infinity = std::numeric_limits<T>::infinity();

/// c = a b, or c += a b, of m x n and k by register tiles: no copies, so b and c have neighboring columns, and operands are read from the cache.
template <class T>
HWY_INLINE void multiply_tiles(Index m, Index n, Index k, const T* a, Index a_row, Index a_col, const T* b, Index b_row, T* c, Index c_row,
                               bool add) {
  const TileJob job{k, a_row, a_col, b_row, c_row, n % lanes<T>, add};
  // Of nearly equal height: a short last one would spend its time waiting for its own sums.
  const Index down = (m + tile_rows - 1) / tile_rows;
  for (Index j = 0; j < n; j += tile_columns<T>) {
    const Index columns = std::min(n - j, tile_columns<T>);
    for (Index t = 0, i = 0; t < down; ++t) {
      const Index rows = (m - i) / (down - t);
      tile_for<T>(rows, columns)(job, a + i * a_row, b + j, c + i * c_row + j);
      i += rows;
    }
  }
}

/// exp(x) for x <= 0 or NaN: 0 for -inf. Largest error 1 ulp down to -20 and 1e-6 below.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative(D d, V x) {
#if HWY_NATIVE_FMA
  using T = hn::TFromD<D>;
  using C = Constants<D>;
  x = at_least(d, x, C::exp_min);
  const V magic = hn::Set(d, C::round_magic);
  const V n = hn::Sub(hn::MulAdd(x, hn::Set(d, C::log2e), magic), magic);
  // One step instead of two: the product is exact inside the fused operation, and n times the error of ln 2 stays small for weights that count.
  const V r = hn::NegMulAdd(n, hn::Set(d, C::ln2_hi + C::ln2_lo), x);
  V y = polynomial(d, r, C::exp_tail);
  y = hn::MulAdd(y, r, hn::Set(d, T{1}));
  return scale(d, hn::MulAdd(y, r, hn::Set(d, T{1})), n);
#else
  return exp(d, x);
#endif
}

/// out[c * width + i] = factor x[i * x_row + c] for `rows` rows; the other columns of out, up to `width`, become 0.
template <class T>
HWY_INLINE void pack_queries(const T* x, Index x_row, Index rows, Index size, T factor, T* HWY_RESTRICT out, Index width) {
  const Simd<T> d;
  copy_transposed(x, x_row, Index{1}, rows, size, out, width);
  for (Index i = 0; i < width; i += lanes<T>) {
    const auto valid = hn::FirstN(d, static_cast<size_t>(std::clamp(rows - i, Index{0}, lanes<T>)));
    for (Index c = 0; c < size; ++c) {
      T* const at = out + c * width + i;
      hn::Store(hn::IfThenElseZero(valid, hn::Mul(hn::Load(d, at), hn::Set(d, factor))), d, at);
    }
  }
}

/// What turns scores into weights, exp(s - shift) share, for `count` queries from `row` on; lanes beyond, and queries that may attend to nothing, are
/// made to give 0.
template <class T>
HWY_INLINE void load_softmax_rows(SoftmaxRows<const T> rows, Index row, Index count, Index width, T* shift, T* share) {
  for (Index i = 0; i < width; ++i) {
    const bool alive = i < count && rows.sum[row + i] != 0;
    shift[i] = alive ? rows.max[row + i] : infinity<T>;
    share[i] = alive ? 1 / rows.sum[row + i] : T{0};
  }
}

/// Queries and keys of a tile: element (j, i) of its transposed matrices is key keys.begin + j and query queries.begin + i.
struct TilePlace {
  Index p;
  Range queries, keys;
  Index width;  ///< between rows of the tile: the queries, rounded up to whole vectors
};

/// x = -inf where `keep` is false.
template <class T>
HWY_INLINE void forbid(const bool* keep, Index n, T* x) {
  const Simd<T> d;
  Index j = 0;
  for (; j + lanes<T> <= n; j += lanes<T>)
    hn::StoreU(hn::IfThenElse(load_mask(d, keep + j), hn::LoadU(d, x + j), hn::Set(d, -infinity<T>)), d, x + j);
  for (; j < n; ++j)
    if (!keep[j]) x[j] = -infinity<T>;
}

/// What is added to the scores, -inf where `keep` or the bias forbids, in rows of queries. Returns how many rows: 1 when it is the same for all.
template <class T>
Index added_rows(const AttentionMask<T>& mask, const TilePlace& at, T* HWY_RESTRICT rows) {
  const Index n = at.keys.size();
  const bool same = (!mask.keep.data || mask.keep.row_stride == 0) && (!mask.bias.data || mask.bias.row_stride == 0);
  const Index count = same ? 1 : at.queries.size();
  for (Index i = 0; i < count; ++i) {
    T* const row = rows + i * n;
    if (mask.bias.data) {
      const Index step = mask.bias_column_stride;
      const T* bias = matrix(mask.bias, at.p) + (at.queries.begin + i) * mask.bias.row_stride + at.keys.begin * step;
      if (step == 1)
        std::copy_n(bias, n, row);
      else
        for (Index j = 0; j < n; ++j) row[j] = bias[j * step];
    } else {
      std::fill_n(row, n, T{0});
    }
    if (mask.keep.data) {
      const Index step = mask.keep_column_stride;
      const bool* keep = matrix(mask.keep, at.p) + (at.queries.begin + i) * mask.keep.row_stride + at.keys.begin * step;
      if (step == 1)
        forbid(keep, n, row);
      else
        for (Index j = 0; j < n; ++j) row[j] = keep[j * step] ? row[j] : -infinity<T>;
    }
  }
  return count;
}

/// The factors of dropout, 0 or 1 / (1 - p), in rows of queries.
template <class T>
void kept_rows(const AttentionDropout& dropout, const AttentionSizes& sizes, const TilePlace& at, T* HWY_RESTRICT rows) {
  const T kept = dropout.p < 1 ? static_cast<T>(1 / (1 - dropout.p)) : T{0};
  for (Index i = 0; i < at.queries.size(); ++i) {
    const Index begin = (at.p * sizes.Tq + at.queries.begin + i) * sizes.Tk + at.keys.begin, n = at.keys.size();
    dropout_factors(rows + i * n, dropout.seed, dropout.offset + static_cast<std::uint64_t>(begin), n, dropout.p, kept);
  }
}

/// A tile from `count` rows, one of which stands for all queries, with zeros beyond the queries otherwise.
template <class T>
void tile_from_rows(const TilePlace& at, Index count, Matrix<T> rows, T* HWY_RESTRICT out) {
  const Index n = at.keys.size();
  if (count == 1) {
    for (Index j = 0; j < n; ++j) std::fill_n(out + j * at.width, at.width, rows.data[j * rows.col_stride]);
    return;
  }
  copy_transposed(rows.data, rows.row_stride, rows.col_stride, count, n, out, at.width);
  if (count < at.width)
    for (Index j = 0; j < n; ++j) std::fill_n(out + j * at.width + count, at.width - count, T{0});
}
template <class T>
void load_added(const AttentionMask<T>& mask, const TilePlace& at, T* rows, T* out) {
  if (mask.keep.data || mask.bias.row_stride == 0) {
    const Index count = added_rows(mask, at, rows);
    return tile_from_rows(at, count, Matrix<T>{rows, at.keys.size(), 1}, out);
  }
  const Index row = mask.bias.row_stride, column = mask.bias_column_stride;
  const T* bias = matrix(mask.bias, at.p) + at.queries.begin * row + at.keys.begin * column;
  tile_from_rows(at, at.queries.size(), Matrix<T>{bias, row, column}, out);
}
template <class T>
void load_kept(const AttentionDropout& dropout, const AttentionSizes& sizes, const TilePlace& at, T* rows, T* out) {
  kept_rows(dropout, sizes, at, rows);
  tile_from_rows(at, at.queries.size(), Matrix<T>{rows, at.keys.size(), 1}, out);
}

/// Adds the biases to the scores s of a tile and makes forbidden ones -inf; `added` is null or from load_added. Columns below `first` are left alone.
template <class T>
void mask_tile(const AttentionMask<T>& mask, const Visibility& visible, const TilePlace& at, Index first, const T* added, T* s) {
  const Simd<T> d;
  const auto forbidden = hn::Set(d, -infinity<T>);
  const bool alibi = !mask.slopes.empty();
  const auto slope = hn::Set(d, alibi ? mask.slopes[static_cast<std::size_t>(at.p)] : T{0});
  const Range open = added || alibi ? Range{0, 0} : visible.all_keys(at.queries);
  for (Index j = 0; j < at.keys.size(); ++j) {
    const Index key = at.keys.begin + j;
    if (key >= open.begin && key < open.end) continue;
    const Range allowed = visible.queries(key);
    const Index distance = at.queries.begin + visible.offset() - key;
    for (Index i = first; i < at.width; i += lanes<T>) {
      T* const score = s + j * at.width + i;
      auto x = hn::Load(d, score);
      if (alibi) x = hn::MulAdd(hn::Abs(hn::Iota(d, static_cast<T>(distance + i))), slope, x);
      if (added) {
        const auto y = hn::Load(d, added + j * at.width + i);
        x = hn::IfThenElse(hn::Eq(y, forbidden), forbidden, hn::Add(x, y));
      }
      const auto lanes_before = [&](Index query) HWY_ATTR {
        return hn::FirstN(d, static_cast<size_t>(std::clamp(query - at.queries.begin - i, Index{0}, lanes<T>)));
      };
      hn::Store(hn::IfThenElse(hn::AndNot(lanes_before(allowed.begin), lanes_before(allowed.end)), x, forbidden), d, score);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#endif
