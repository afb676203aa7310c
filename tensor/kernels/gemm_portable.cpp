// heed's own matrix products. The sum behind an element is taken in an order that follows from the sizes of the whole product, never from how it
// was split among threads: the bits are the same for every thread count.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/gemm_portable.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "../storage.h"
#include "gemm.h"
#include "gemm_jobs.h"
#include "gemm_tile-inl.h"
#include "gemm_vector-inl.h"
#include "parallel.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
constexpr Index k_limit = 1024 / static_cast<Index>(sizeof(T));

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
  constexpr Index n_limit = 256;
  const Index k_blocks = (x.k + k_limit<T> - 1) / k_limit<T>, n_blocks = (x.n + n_limit - 1) / n_limit;
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
  HWY_ALIGN T row_panel[tile_rows * k_limit<T>];
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

/// Cut and run in one go, with the copy of B on the stack; false where it does not fit.
template <class T>
bool multiply_small(const Product<T>& x) {
  constexpr Index room = 32768 / static_cast<Index>(sizeof(T));
  const Blocks blocks = blocks_for(x);
  if (blocks.panel > room) return false;
  HWY_ALIGN T panel[room];
  multiply(x, blocks, panel);
  return true;
}

// Highway's tables hold functions of one name and type.
Blocks BlocksF32(const Product<float>& x) { return blocks_for(x); }
Blocks BlocksF64(const Product<double>& x) { return blocks_for(x); }
void MultiplyF32(const Product<float>& x, const Blocks& blocks, float* panel) { multiply(x, blocks, panel); }
void MultiplyF64(const Product<double>& x, const Blocks& blocks, double* panel) { multiply(x, blocks, panel); }
bool SmallF32(const Product<float>& x) { return multiply_small(x); }
bool SmallF64(const Product<double>& x) { return multiply_small(x); }
void DotsF32(const Few<float>& x) { multiply_dots(x); }
void DotsF64(const Few<double>& x) { multiply_dots(x); }
void RowsF32(const Few<float>& x) { add_rows(x); }
void RowsF64(const Few<double>& x) { add_rows(x); }

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
HWY_EXPORT(DotsF32);
HWY_EXPORT(DotsF64);
HWY_EXPORT(RowsF32);
HWY_EXPORT(RowsF64);

Blocks blocks_for(const Product<float>& x) { return HWY_DYNAMIC_DISPATCH(BlocksF32)(x); }
Blocks blocks_for(const Product<double>& x) { return HWY_DYNAMIC_DISPATCH(BlocksF64)(x); }
void multiply(const Product<float>& x, const Blocks& blocks, float* panel) { HWY_DYNAMIC_DISPATCH(MultiplyF32)(x, blocks, panel); }
void multiply(const Product<double>& x, const Blocks& blocks, double* panel) { HWY_DYNAMIC_DISPATCH(MultiplyF64)(x, blocks, panel); }
bool multiply_small(const Product<float>& x) { return HWY_DYNAMIC_DISPATCH(SmallF32)(x); }
bool multiply_small(const Product<double>& x) { return HWY_DYNAMIC_DISPATCH(SmallF64)(x); }
void multiply_dots(const Few<float>& x) { HWY_DYNAMIC_DISPATCH(DotsF32)(x); }
void multiply_dots(const Few<double>& x) { HWY_DYNAMIC_DISPATCH(DotsF64)(x); }
void add_rows(const Few<float>& x) { HWY_DYNAMIC_DISPATCH(RowsF32)(x); }
void add_rows(const Few<double>& x) { HWY_DYNAMIC_DISPATCH(RowsF64)(x); }

/// Products of up to this many multiplications are over before a cut that looks at threads would be.
constexpr Index small_work = 16 * 16 * 16;
/// Multiplications that pay for one more thread; for products with few rows, elements of the matrix.
constexpr Index thread_work = 48 * 48 * 48, thread_elements = 1 << 17;
/// Few rows, each long for their number: then dot products are faster than bringing the matrix into the order of the tiles.
constexpr Index most_few = 16;
constexpr bool dots_pay(Index rows, Index depth) { return rows <= 8 ? depth >= 64 : rows <= most_few && depth >= 256; }

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

/// The columns of x, spread over threads.
template <class T, class F>
void in_columns(const Few<T>& x, const F& f) {
  parallel_for(x.n, std::max<Index>(1, thread_elements / x.k), [&](Index begin, Index end) {
    Few<T> some = x;
    some.n = end - begin;
    some.b.data += begin * x.b.col_stride;
    some.c += begin * x.c_col;
    f(some);
  });
}

/// Copies the rows of x.a one after another, where they are not.
template <class T>
class RowsInOrder {
 public:
  explicit RowsInOrder(Few<T>& x) : copy_(x.a.col_stride == 1 || x.k == 1 ? 0 : x.m * x.k) {
    if (!copy_.data()) return;
    for (Index i = 0; i < x.m; ++i)
      for (Index p = 0; p < x.k; ++p) copy_.data()[i * x.k + p] = x.a.data[i * x.a.row_stride + p * x.a.col_stride];
    x.a = {copy_.data(), x.k, 1};
  }

 private:
  Scratch<T> copy_;
};

/// Without tiles, as long as the few rows or the matrix lie well for that. False when they do not, or there are too many rows.
template <class T>
bool multiply_few(Few<T> x) {
  const bool down = x.b.row_stride == 1, along = x.b.col_stride == 1 && x.n > 1;
  if (x.m == 1 && along && !(down && x.k > x.n)) {
    const RowsInOrder<T> copied(x);
    const Scratch<T> sums(x.c_col == 1 ? 0 : x.n);
    Few<T> to = x;
    if (sums.data()) to.c = sums.data(), to.c_col = 1, to.add = false;
    in_columns(to, [](const Few<T>& some) {
      if (!some.add) std::fill(some.c, some.c + some.n, T{0});
      add_rows(some);
    });
    if (sums.data())
      for (Index j = 0; j < x.n; ++j) x.c[j * x.c_col] = x.add ? x.c[j * x.c_col] + sums.data()[j] : sums.data()[j];
    return true;
  }
  if (down && (x.m == 1 || dots_pay(x.m, x.k))) {
    const RowsInOrder<T> copied(x);
    in_columns(x, [](const Few<T>& some) { multiply_dots(some); });
    return true;
  }
  if (x.m > 1) return false;
  for (Index j = 0; j < x.n; ++j) {
    T sum = 0;
    for (Index p = 0; p < x.k; ++p) sum += x.a.data[p * x.a.col_stride] * x.b.data[p * x.b.row_stride + j * x.b.col_stride];
    x.c[j * x.c_col] = x.add ? x.c[j * x.c_col] + sum : sum;
  }
  return true;
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
  if (std::min(m, n) <= most_few) {
    const bool transposed = n < m;
    const Matrix<T> at{a.data, a.col_stride, a.row_stride}, bt{b.data, b.col_stride, b.row_stride};
    if (multiply_few(transposed ? Few<T>{n, m, k, bt, at, c, 1, ldc, add} : Few<T>{m, n, k, a, b, c, ldc, 1, add})) return;
  }
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
