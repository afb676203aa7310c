// heed's own matrix products. The sum behind an element is taken in an order that follows from the sizes of the whole product, never from how it
// was split among threads: the bits are the same for every thread count.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/gemm_portable.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "../storage.h"
#include "gemm.h"
#include "gemm_tile-inl.h"
#include "gemm_vector-inl.h"
#include "parallel.h"

#ifndef HEED_GEMM_PORTABLE_ONCE
#define HEED_GEMM_PORTABLE_ONCE
namespace heed::kernels {
namespace {

template <class T>
struct Product {
  Index m, n, k;
  Matrix<T> a, b;
  T* c;
  Index ldc;
  bool add;
};

/// A product with m = 1. Elements of `a` are neighbors.
template <class T>
struct VectorProduct {
  Index n, k;
  const T* a;
  Matrix<T> b;
  T* c;
  Index c_stride;
  bool add;
  bool in_columns;  ///< the elements of a column of B are neighbors; otherwise those of a row, and those of c
};

/// How a product is cut: `k` rows and `n` columns of B are used together, and stay in the second cache while all rows of A pass.
struct Blocks {
  Index k, n;
  bool copy_a, copy_b;
  Index panel;                    ///< elements of the copy of B
  Index tile_rows, tile_columns;  ///< of this CPU
};

/// Products up to this many multiplications are cut and run in one go, with the copy of B on the stack.
constexpr Index small_work = 16 * 16 * 16;
constexpr std::size_t small_panel_bytes = 32768;

}  // namespace
}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr Index k_limit = 256;

template <class T>
Index whole_strips(Index n) {
  return (n + tile_columns<T> - 1) / tile_columns<T> * tile_columns<T>;
}

/// Whether rows this far apart fall on so few lines of the first cache that they push each other out.
template <class T>
bool crowded(Index stride) {
  return stride * static_cast<Index>(sizeof(T)) % 1024 == 0;
}

template <class T>
Blocks blocks_for(const Product<T>& x) {
  constexpr Index n_limit = 2048 / static_cast<Index>(sizeof(T));
  const Index k_blocks = (x.k + k_limit - 1) / k_limit, n_blocks = (x.n + n_limit - 1) / n_limit;
  Blocks blocks;
  blocks.k = (x.k + k_blocks - 1) / k_blocks;
  blocks.n = std::min(x.n, whole_strips<T>((x.n + n_blocks - 1) / n_blocks));
  blocks.copy_b = x.b.col_stride != 1 || (x.m > 2 * tile_rows && (x.k * x.n > 16384 || crowded<T>(x.b.row_stride)));
  blocks.copy_a = x.n > 4 * tile_columns<T> || (x.n > tile_columns<T> && crowded<T>(std::max(x.a.row_stride, x.a.col_stride)));
  blocks.panel = blocks.copy_b ? blocks.k * whole_strips<T>(blocks.n) : 0;
  blocks.tile_rows = tile_rows;
  blocks.tile_columns = tile_columns<T>;
  return blocks;
}

/// The whole product on this thread. `panel` has room for blocks.panel elements.
template <class T>
void multiply(const Product<T>& x, const Blocks& blocks, T* panel) {
  HWY_ALIGN T row_panel[tile_rows * k_limit];
  // Tiles of nearly equal height: a short last one would spend its time waiting for its own sums.
  const Index tiles_down = (x.m + tile_rows - 1) / tile_rows;
  const Index low = x.m / tiles_down, higher = x.m % tiles_down;
  for (Index p = 0; p < x.k; p += blocks.k) {
    for (Index j0 = 0; j0 < x.n; j0 += blocks.n) {
      const Index k = std::min(blocks.k, x.k - p), n = std::min(blocks.n, x.n - j0), rest = n % tile_columns<T>;
      TileJob job{k, x.a.row_stride, x.a.col_stride, x.b.row_stride, x.ldc, n % lanes<T>, x.add || p > 0};
      const T* b = x.b.data + p * x.b.row_stride + j0 * x.b.col_stride;
      Index strip = tile_columns<T>;
      if (blocks.copy_b) {
        pack_strips(b, x.b.row_stride, x.b.col_stride, n, k, panel);
        b = panel;
        strip = k * tile_columns<T>;
        job.b_row = tile_columns<T>;
      }
      for (Index t = 0, i = 0; t < tiles_down; ++t) {
        const Index rows = low + (t < higher ? 1 : 0);
        const T* a = x.a.data + i * x.a.row_stride + p * x.a.col_stride;
        if (blocks.copy_a) {
          pack_rows(a, x.a.row_stride, x.a.col_stride, rows, k, row_panel);
          a = row_panel;
          job.a_row = 1;
          job.a_col = rows;
        }
        T* c = x.c + i * x.ldc + j0;
        const T* b_strip = b;
        if (n > rest) {
          const Tile<T> full = tile_for<T>(rows, tile_columns<T>);
          for (Index j = rest; j < n; j += tile_columns<T>, c += tile_columns<T>, b_strip += strip) full(job, a, b_strip, c);
        }
        if (rest > 0) tile_for<T>(rows, rest)(job, a, b_strip, c);
        i += rows;
      }
    }
  }
}

template <class T>
bool multiply_small(const Product<T>& x) {
  const Blocks blocks = blocks_for(x);
  if (blocks.panel * static_cast<Index>(sizeof(T)) > static_cast<Index>(small_panel_bytes)) return false;
  HWY_ALIGN T panel[small_panel_bytes / sizeof(T)];
  multiply(x, blocks, panel);
  return true;
}

template <class T>
void multiply_vector(const VectorProduct<T>& x) {
  if (x.in_columns) {
    vector_times_columns(x.n, x.k, x.a, x.b.data, x.b.col_stride, x.c, x.c_stride, x.add);
  } else {
    if (!x.add) std::fill(x.c, x.c + x.n, T{0});
    vector_times_rows(x.n, x.k, x.a, x.b.data, x.b.row_stride, x.c);
  }
}

// Highway's tables hold functions of one name and type.
Blocks BlocksF32(const Product<float>& x) { return blocks_for(x); }
Blocks BlocksF64(const Product<double>& x) { return blocks_for(x); }
void MultiplyF32(const Product<float>& x, const Blocks& blocks, float* panel) { multiply(x, blocks, panel); }
void MultiplyF64(const Product<double>& x, const Blocks& blocks, double* panel) { multiply(x, blocks, panel); }
bool SmallF32(const Product<float>& x) { return multiply_small(x); }
bool SmallF64(const Product<double>& x) { return multiply_small(x); }
void VectorF32(const VectorProduct<float>& x) { multiply_vector(x); }
void VectorF64(const VectorProduct<double>& x) { multiply_vector(x); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(BlocksF32);
HWY_EXPORT(BlocksF64);
HWY_EXPORT(MultiplyF32);
HWY_EXPORT(MultiplyF64);
HWY_EXPORT(SmallF32);
HWY_EXPORT(SmallF64);
HWY_EXPORT(VectorF32);
HWY_EXPORT(VectorF64);

Blocks blocks_for(const Product<float>& x) { return HWY_DYNAMIC_DISPATCH(BlocksF32)(x); }
Blocks blocks_for(const Product<double>& x) { return HWY_DYNAMIC_DISPATCH(BlocksF64)(x); }
void multiply(const Product<float>& x, const Blocks& blocks, float* panel) { HWY_DYNAMIC_DISPATCH(MultiplyF32)(x, blocks, panel); }
void multiply(const Product<double>& x, const Blocks& blocks, double* panel) { HWY_DYNAMIC_DISPATCH(MultiplyF64)(x, blocks, panel); }
bool multiply_small(const Product<float>& x) { return HWY_DYNAMIC_DISPATCH(SmallF32)(x); }
bool multiply_small(const Product<double>& x) { return HWY_DYNAMIC_DISPATCH(SmallF64)(x); }
void multiply_vector(const VectorProduct<float>& x) { HWY_DYNAMIC_DISPATCH(VectorF32)(x); }
void multiply_vector(const VectorProduct<double>& x) { HWY_DYNAMIC_DISPATCH(VectorF64)(x); }

/// Multiplications that pay for one more thread; for products with a vector, elements of the matrix.
constexpr Index thread_work = 48 * 48 * 48, thread_elements = 1 << 17;

template <class T>
class Scratch {
 public:
  explicit Scratch(Index elements)
      : bytes_(static_cast<std::size_t>(elements) * sizeof(T)), data_(elements > 0 ? detail::allocate(bytes_) : nullptr) {}
  ~Scratch() {
    if (data_) detail::deallocate(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

/// The part of a product that begins at row i and column j of c.
template <class T>
Product<T> part(Product<T> x, Index i, Index m, Index j, Index n) {
  x.a.data += i * x.a.row_stride;
  x.b.data += j * x.b.col_stride;
  x.c += i * x.ldc + j;
  x.m = m;
  x.n = n;
  return x;
}

/// c in a grid of parts, one for a thread. Each part copies its own operands, so the grid is the one with the least to copy.
template <class T>
void multiply_in_parts(const Product<T>& x, int threads) {
  const Blocks whole = blocks_for(x);
  const Index row_tiles = (x.m + whole.tile_rows - 1) / whole.tile_rows, column_tiles = (x.n + whole.tile_columns - 1) / whole.tile_columns;
  Index down = 1, across = 1;
  double least = 0;
  for (Index d = 1; d <= threads; ++d) {
    const Index a = std::min<Index>(threads / d, column_tiles);
    if (d > row_tiles) break;
    const double largest = static_cast<double>((row_tiles + d - 1) / d) * static_cast<double>((column_tiles + a - 1) / a);
    const double copied = static_cast<double>(x.m) / static_cast<double>(d) + static_cast<double>(x.n) / static_cast<double>(a);
    const double cost = largest * static_cast<double>(whole.tile_rows * whole.tile_columns) + 16 * copied;
    if (least == 0 || cost < least) least = cost, down = d, across = a;
  }
  const Index rows = (row_tiles + down - 1) / down * whole.tile_rows, columns = (column_tiles + across - 1) / across * whole.tile_columns;
  Blocks blocks = blocks_for(part(x, 0, std::min(rows, x.m), 0, std::min(columns, x.n)));
  blocks.k = whole.k;
  const Scratch<T> panels(blocks.panel * down * across);
  const auto run = [&](Index begin, Index end) {
    for (Index cell = begin; cell < end; ++cell) {
      const Index i = cell / across * rows, j = cell % across * columns;
      if (i >= x.m || j >= x.n) continue;
      multiply(part(x, i, std::min(rows, x.m - i), j, std::min(columns, x.n - j)), blocks, panels.data() + cell * blocks.panel);
    }
  };
  using Run = decltype(run);
  parallel_ranges(
      down * across, static_cast<int>(down * across), [](void* f, Index begin, Index end) { (*static_cast<Run*>(f))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&run)));
}

/// x with m = 1 and `c_stride` between the elements of c.
template <class T>
void multiply_vector(Index n, Index k, const T* a, Index a_stride, Matrix<T> b, T* c, Index c_stride, bool add) {
  const bool in_rows = b.col_stride == 1 && n > 1, in_columns = b.row_stride == 1 && !(in_rows && k < n);
  if (!in_columns && !in_rows) {
    for (Index j = 0; j < n; ++j) {
      T sum = 0;
      for (Index p = 0; p < k; ++p) sum += a[p * a_stride] * b.data[p * b.row_stride + j * b.col_stride];
      c[j * c_stride] = add ? c[j * c_stride] + sum : sum;
    }
    return;
  }
  const bool apart = !in_columns && c_stride != 1;
  const Scratch<T> a_copy(a_stride == 1 ? 0 : k), c_copy(apart ? n : 0);
  if (a_stride != 1) {
    for (Index p = 0; p < k; ++p) a_copy.data()[p] = a[p * a_stride];
    a = a_copy.data();
  }
  T* const to = apart ? c_copy.data() : c;
  const Index to_stride = apart ? 1 : c_stride;
  parallel_for(n, std::max<Index>(1, thread_elements / k), [&](Index begin, Index end) {
    multiply_vector(VectorProduct<T>{end - begin,
                                     k,
                                     a,
                                     {b.data + begin * b.col_stride, b.row_stride, b.col_stride},
                                     to + begin * to_stride,
                                     to_stride,
                                     add && !apart,
                                     in_columns});
  });
  if (!apart) return;
  for (Index j = 0; j < n; ++j) c[j * c_stride] = add ? c[j * c_stride] + to[j] : to[j];
}

}  // namespace

namespace portable {

template <class T>
void gemm(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into into) {
  if (m == 0 || n == 0) return;
  const bool add = into == Into::accumulate;
  if (k == 0) {
    if (!add)
      for (Index i = 0; i < m; ++i) std::fill(c + i * ldc, c + i * ldc + n, T{0});
    return;
  }
  if (m == 1) return multiply_vector(n, k, a.data, a.col_stride, b, c, Index{1}, add);
  if (n == 1) return multiply_vector(m, k, b.data, b.row_stride, Matrix<T>{a.data, a.col_stride, a.row_stride}, c, ldc, add);
  const Product<T> x{m, n, k, a, b, c, ldc, add};
  const Index work = m * n * k;
  if (work <= small_work && multiply_small(x)) return;
  if (const int threads = threads_for(work, thread_work); threads > 1) return multiply_in_parts(x, threads);
  const Blocks blocks = blocks_for(x);
  const Scratch<T> panel(blocks.panel);
  multiply(x, blocks, panel.data());
}
template void gemm(Index, Index, Index, Matrix<float>, Matrix<float>, float*, Index, Into);
template void gemm(Index, Index, Index, Matrix<double>, Matrix<double>, double*, Index, Into);

}  // namespace portable
}  // namespace heed::kernels
#endif
