// The register tile of a matrix product, and the copying of operands into the order in which it reads them. Compiled once for every SIMD target.

#if defined(HEED_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GEMM_TILE_INL_H_
#undef HEED_GEMM_TILE_INL_H_
#else
#define HEED_GEMM_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "../dtype.h"
#include "unrolled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// tile_rows * tile_vectors sums, tile_vectors registers of B and one of A have to fit the registers of the target.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int tile_rows = 14, tile_vectors = 2;
#elif HWY_ARCH_ARM_A64
inline constexpr int tile_rows = 8, tile_vectors = 3;
#else
inline constexpr int tile_rows = 6, tile_vectors = 2;
#endif

template <class T>
using Simd = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Simd<T>>;
template <class T>
inline constexpr Index lanes = static_cast<Index>(HWY_LANES(T));
template <class T>
inline constexpr Index tile_columns = tile_vectors* lanes<T>;

/// The first `count` lanes of a vector, for the last columns of a matrix; a full vector where `partial` is false.
template <class T, bool partial>
class Lanes {
 public:
#if (HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2) || HWY_TARGET == HWY_SCALAR
  // No masks that keep a load from touching what lies behind the end.
  explicit HWY_INLINE Lanes(Index count) : count_(count) {}
  HWY_INLINE Vector<T> load(const T* p) const {
    if constexpr (!partial) return hn::LoadU(Simd<T>(), p);
    HWY_ALIGN T buffer[HWY_LANES(T)] = {};
    for (Index i = 0; i < count_; ++i) buffer[i] = p[i];
    return hn::Load(Simd<T>(), buffer);
  }
  HWY_INLINE void store(Vector<T> v, T* p) const {
    if constexpr (!partial) return hn::StoreU(v, Simd<T>(), p);
    HWY_ALIGN T buffer[HWY_LANES(T)];
    hn::Store(v, Simd<T>(), buffer);
    for (Index i = 0; i < count_; ++i) p[i] = buffer[i];
  }

 private:
  Index count_;
#else
  explicit HWY_INLINE Lanes(Index count) : mask_(hn::FirstN(Simd<T>(), static_cast<size_t>(count))) {}
  HWY_INLINE Vector<T> load(const T* p) const { return partial ? hn::MaskedLoad(mask_, Simd<T>(), p) : hn::LoadU(Simd<T>(), p); }
  HWY_INLINE void store(Vector<T> v, T* p) const {
    if constexpr (partial) {
      hn::BlendedStore(v, mask_, Simd<T>(), p);
    } else {
      hn::StoreU(v, Simd<T>(), p);
    }
  }

 private:
  hn::Mask<Simd<T>> mask_;
#endif
};

/// What the tiles of one product share.
struct TileJob {
  Index k;
  Index a_row, a_col;  ///< strides of A
  Index b_row;         ///< between rows of B, whose columns are neighbors
  Index c_row;
  Index tail;  ///< columns in the last vector of a partial tile
  bool add;    ///< c += a b
};

/// rows x (vectors * lanes) elements of C, kept in registers for the whole of k; the last vector has `tail` columns when `partial`.
/// Every element is summed in the order of k, whatever tile it lies in.
template <class T, int rows, int vectors, bool partial>
HWY_NOINLINE void tile(const TileJob& job, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, T* HWY_RESTRICT c) {
  using V = Vector<T>;
  constexpr int last = vectors - 1;
  const Lanes<T, false> all(lanes<T>);
  const Lanes<T, partial> rest(job.tail);
  const auto load = [&](const T* from, auto j) HWY_ATTR { return j == last ? rest.load(from + j * lanes<T>) : all.load(from + j * lanes<T>); };

  V sum[rows][vectors];
  unrolled<rows>([&](auto i) HWY_ATTR { unrolled<vectors>([&](auto j) HWY_ATTR { sum[i][j] = hn::Zero(Simd<T>()); }); });

  if (job.k >= 64) {
    T* row = c;
    unrolled<rows>([&](auto) HWY_ATTR {
      unrolled<vectors>([&](auto j) HWY_ATTR { __builtin_prefetch(row + j * lanes<T>, 1); });
      row += job.c_row;
    });
  }
  const Index a_row = job.a_row, a_col = job.a_col, b_row = job.b_row;
  // One pointer for every four rows: the other rows are within reach of an addressing mode.
  const T* four[] = {a, a + 4 * a_row, a + 8 * a_row, a + 12 * a_row};
  for (Index p = job.k; p > 0; --p) {
    V y[vectors];
    unrolled<vectors>([&](auto j) HWY_ATTR { y[j] = load(b, j); });
    unrolled<rows>([&](auto i) HWY_ATTR {
      const V x = hn::Set(Simd<T>(), four[i / 4][(i % 4) * a_row]);
      unrolled<vectors>([&](auto j) HWY_ATTR { sum[i][j] = hn::MulAdd(x, y[j], sum[i][j]); });
    });
    unrolled<4>([&](auto i) HWY_ATTR { four[i] += a_col; });
    b += b_row;
  }

  unrolled<rows>([&](auto i) HWY_ATTR {
    unrolled<vectors>([&](auto j) HWY_ATTR {
      const V v = job.add ? hn::Add(load(c, j), sum[i][j]) : sum[i][j];
      if constexpr (j == last) {
        rest.store(v, c + j * lanes<T>);
      } else {
        all.store(v, c + j * lanes<T>);
      }
    });
    c += job.c_row;
  });
}

template <class T>
using Tile = void (*)(const TileJob&, const T* a, const T* b, T* c);

template <class T, int vectors, bool partial, size_t... i>
constexpr std::array<Tile<T>, sizeof...(i)> tiles_by_height(std::index_sequence<i...>) {
  return {tile<T, static_cast<int>(i) + 1, vectors, partial>...};
}
template <class T, int vectors, bool partial>
inline constexpr auto tiles = tiles_by_height<T, vectors, partial>(std::make_index_sequence<tile_rows>());

/// The tile of `rows` x `columns`, at most tile_rows x tile_columns.
template <class T>
HWY_INLINE Tile<T> tile_for(Index rows, Index columns) {
  const size_t height = static_cast<size_t>(rows - 1);
  const Index vectors = (columns + lanes<T> - 1) / lanes<T>;
  const bool partial = lanes<T> > 1 && columns % lanes<T> != 0;
#if HWY_ARCH_ARM_A64
  if (vectors == 3) return partial ? tiles<T, 3, true>[height] : tiles<T, 3, false>[height];
#endif
  if (vectors == 2) return partial ? tiles<T, 2, true>[height] : tiles<T, 2, false>[height];
  return partial ? tiles<T, 1, true>[height] : tiles<T, 1, false>[height];
}

/// out[j * out_row + i] = x[i * x_row + j] for 4 x 4 elements.
template <class T>
HWY_INLINE void transpose_4x4(const T* HWY_RESTRICT x, Index x_row, T* HWY_RESTRICT out, Index out_row) {
#if HWY_TARGET == HWY_SCALAR
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j < 4; ++j) out[j * out_row + i] = x[i * x_row + j];
#else
  if constexpr (sizeof(T) == 4) {
    const hn::FixedTag<T, 4> d;
    const hn::RepartitionToWide<hn::Repartition<uint32_t, decltype(d)>> wide;
    const auto r0 = hn::LoadU(d, x), r1 = hn::LoadU(d, x + x_row), r2 = hn::LoadU(d, x + 2 * x_row), r3 = hn::LoadU(d, x + 3 * x_row);
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1)), high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
    const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3)), high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, low01, low23)), d, out);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23)), d, out + out_row);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, high01, high23)), d, out + 2 * out_row);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23)), d, out + 3 * out_row);
  } else {
    const hn::FixedTag<T, 2> d;
    for (Index i = 0; i < 4; i += 2) {
      for (Index j = 0; j < 4; j += 2) {
        const auto r0 = hn::LoadU(d, x + i * x_row + j), r1 = hn::LoadU(d, x + (i + 1) * x_row + j);
        hn::StoreU(hn::InterleaveLower(d, r0, r1), d, out + j * out_row + i);
        hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, out + (j + 1) * out_row + i);
      }
    }
  }
#endif
}

/// out[j * out_row + i] = x[i * x_row + j * x_col] for rows x columns elements.
template <class T>
HWY_INLINE void copy_transposed(const T* HWY_RESTRICT x, Index x_row, Index x_col, Index rows, Index columns, T* HWY_RESTRICT out, Index out_row) {
  Index i = 0;
  if (x_col == 1 && columns >= 4) {
    for (; i < rows; i += 4) {
      if (i + 4 > rows) {  // again over rows that are done, rather than a slow rest
        if (rows < 4) break;
        i = rows - 4;
      }
      const T* from = x + i * x_row;
      Index j = 0;
      for (; j + 4 <= columns; j += 4) transpose_4x4(from + j, x_row, out + j * out_row + i, out_row);
      if (j < columns) transpose_4x4(from + columns - 4, x_row, out + (columns - 4) * out_row + i, out_row);
    }
    if (i >= rows) return;
  }
  for (Index j = 0; j < columns; ++j)
    for (Index r = i; r < rows; ++r) out[j * out_row + r] = x[r * x_row + j * x_col];
}

/// `rows` rows of A, so that those of one column are neighbors.
template <class T>
HWY_INLINE void pack_rows(const T* a, Index a_row, Index a_col, Index rows, Index k, T* HWY_RESTRICT out) {
  copy_transposed(a, a_row, a_col, rows, k, out, rows);
}

/// Columns of B in strips of tile_columns: strip after strip, in each the rows after each other, the last one filled up with zeros.
template <class T>
HWY_INLINE void pack_strips(const T* b, Index b_row, Index b_col, Index columns, Index k, T* HWY_RESTRICT out) {
  for (Index j = 0; j < columns; j += tile_columns<T>, b += tile_columns<T> * b_col, out += k * tile_columns<T>) {
    const Index width = std::min(columns - j, tile_columns<T>);
    if (b_col == 1 && width == tile_columns<T>) {
      for (Index p = 0; p < k; ++p)
        for (Index v = 0; v < tile_columns<T>; v += lanes<T>) {
          hn::StoreU(hn::LoadU(Simd<T>(), b + p * b_row + v), Simd<T>(), out + p * tile_columns<T> + v);
        }
      continue;
    }
    if (width < tile_columns<T>) std::fill(out, out + k * tile_columns<T>, T{0});
    if (b_col == 1) {
      for (Index p = 0; p < k; ++p) std::copy(b + p * b_row, b + p * b_row + width, out + p * tile_columns<T>);
    } else {
      copy_transposed(b, b_col, b_row, width, k, out, tile_columns<T>);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#endif
