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

template <class T>
Blocks blocks_for(const Product<T>& x) {
  constexpr Index n_limit = 384;
  const Index k_blocks = (x.k + k_limit<T> - 1) / k_limit<T>, n_blocks = (x.n + n_limit - 1) / n_limit;
  Blocks blocks;
  blocks.k = (x.k + k_blocks - 1) / k_blocks;
  blocks.n = std::min(x.n, whole_strips<T>((x.n + n_blocks - 1) / n_blocks));
  // Both are read in place as long as that is no slower. B must be copied when a vector of it is not in one piece, and pays for it when the second
  // cache does not hold it; A, when the rows of a tile lie on so few lines of the first cache that they push each other out.
  constexpr Index size = sizeof(T), many = 512 * 1024, period = 4096;
  blocks.copy_b = x.b.col_stride != 1 || (x.m > 2 * tile_rows && x.k * x.n > many / size);
  blocks.copy_a = x.n > tile_columns<T> && x.a.col_stride == 1 && x.a.row_stride * size % period == 0;
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

/// Products of up to this many multiplications are over before a look at threads would be.
constexpr Index small_work = 16 * 16 * 16;
/// Multiplications that pay for one more thread; for products with few rows, elements of the matrix.
constexpr Index thread_work = 650'000, thread_elements = 1 << 18;
/// Few rows, each long for their number: then dot products are faster than bringing the matrix into the order of the tiles.
constexpr Index most_few = 16, least_depth = 64;
constexpr bool dots_pay(Index rows, Index depth) { return rows <= 8 ? depth >= least_depth : rows <= most_few && depth >= 256; }

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

/// How a product is computed. Follows from its sizes and strides alone.
struct Plan {
  enum class Way { tiles, dots, rows, plain } way;
  Blocks blocks;                   ///< of tiles
  Index row_copies = 0, sums = 0;  ///< elements that the other ways copy
  Index scratch() const { return way == Way::tiles ? blocks.panel : row_copies + sums; }
};

/// The few rows, or the few columns as rows of the transpose.
template <class T>
Few<T> few_of(const Product<T>& x) {
  if (x.m <= x.n) return {x.m, x.n, x.k, x.a, x.b, x.c, x.ldc, 1, x.add};
  return {x.n, x.m, x.k, {x.b.data, x.b.col_stride, x.b.row_stride}, {x.a.data, x.a.col_stride, x.a.row_stride}, x.c, 1, x.ldc, x.add};
}

template <class T>
Plan plan_for(const Product<T>& x) {
  if (std::min(x.m, x.n) <= most_few) {
    const Few<T> few = few_of(x);
    const Index row_copies = few.a.col_stride == 1 || few.k == 1 ? 0 : few.m * few.k;
    const bool in_columns = few.b.row_stride == 1, in_rows = few.b.col_stride == 1 && few.n > 1;
    if (few.m == 1 && in_rows && !(in_columns && few.k > few.n)) return {Plan::Way::rows, {}, row_copies, few.c_col == 1 ? 0 : few.n};
    if (in_columns && (few.m == 1 || dots_pay(few.m, few.k))) return {Plan::Way::dots, {}, row_copies, 0};
    if (few.m == 1) return {Plan::Way::plain, {}};
  }
  return {Plan::Way::tiles, blocks_for(x)};
}

/// f(part) for all columns of x, in parts of at least `grain` on several threads.
template <class T, class F>
void in_columns(const Few<T>& x, Index grain, const F& f) {
  parallel_for(x.n, grain, [&](Index begin, Index end) {
    Few<T> some = x;
    some.n = end - begin;
    some.b.data += begin * x.b.col_stride;
    some.c += begin * x.c_col;
    f(some);
  });
}

template <class T>
void multiply_few(Few<T> x, const Plan& plan, T* scratch, Index grain) {
  if (plan.way == Plan::Way::plain) {
    for (Index j = 0; j < x.n; ++j) {
      T sum = 0;
      for (Index p = 0; p < x.k; ++p) sum += x.a.data[p * x.a.col_stride] * x.b.data[p * x.b.row_stride + j * x.b.col_stride];
      x.c[j * x.c_col] = x.add ? x.c[j * x.c_col] + sum : sum;
    }
    return;
  }
  if (plan.row_copies > 0) {
    for (Index i = 0; i < x.m; ++i)
      for (Index p = 0; p < x.k; ++p) scratch[i * x.k + p] = x.a.data[i * x.a.row_stride + p * x.a.col_stride];
    x.a = {scratch, x.k, 1};
  }
  if (plan.way == Plan::Way::dots) return in_columns(x, grain, [](const Few<T>& some) { multiply_dots(some); });

  Few<T> to = x;
  if (plan.sums > 0) to.c = scratch + plan.row_copies, to.c_col = 1, to.add = false;
  in_columns(to, grain, [](const Few<T>& some) {
    if (!some.add) std::fill(some.c, some.c + some.n, T{0});
    add_rows(some);
  });
  if (plan.sums > 0)
    for (Index j = 0; j < x.n; ++j) x.c[j * x.c_col] = x.add ? x.c[j * x.c_col] + to.c[j] : to.c[j];
}

/// On this thread. `scratch` has plan.scratch() elements.
template <class T>
void run_here(const Product<T>& x, const Plan& plan, T* scratch) {
  if (plan.way == Plan::Way::tiles) return multiply(x, plan.blocks, scratch);
  const Few<T> few = few_of(x);
  multiply_few(few, plan, scratch, few.n);
}

/// Whether there is nothing to multiply; then c is as it has to be.
template <class T>
bool done_without_work(const Product<T>& x) {
  if (x.k > 0 && x.m > 0 && x.n > 0) return false;
  if (!x.add)
    for (Index i = 0; i < x.m; ++i) std::fill(x.c + i * x.ldc, x.c + i * x.ldc + x.n, T{0});
  return true;
}

/// Runs f(i) for i < n, each on a thread.
template <class F>
void on_threads(Index n, const F& f) {
  parallel_ranges(
      n, static_cast<int>(n),
      [](void* context, Index begin, Index end) {
        for (Index i = begin; i < end; ++i) (*static_cast<const F*>(context))(i);
      },
      const_cast<void*>(static_cast<const void*>(&f)));
}

/// c in a grid of parts, one for each thread. Every part copies its own operands, so the grid is the one with the least to do and to copy.
template <class T>
void multiply_in_parts(const Product<T>& x, const Blocks& whole, int threads) {
  const auto up = [](Index n, Index parts) { return (n + parts - 1) / parts; };
  const Index strip = whole.tile_columns, strips = up(x.n, strip);
  Index down = 1, across = 1;
  double least = 0;
  for (Index d = 1; d <= std::min<Index>(threads, x.m); ++d) {
    const Index a = std::min(threads / d, strips);
    const double rows = static_cast<double>(up(x.m, d)), columns = static_cast<double>(up(strips, a) * strip);
    const double cost = rows * columns + 16 * (rows + columns);
    if (d == 1 || cost < least) least = cost, down = d, across = a;
  }
  const Index rows = up(x.m, down), columns = up(strips, across) * strip;
  const auto part = [&](Index i, Index j) {
    Product<T> p = x;
    p.m = std::min(rows, x.m - i);
    p.n = std::min(columns, x.n - j);
    p.a.data += i * x.a.row_stride;
    p.b.data += j * x.b.col_stride;
    p.c += i * x.ldc + j;
    return p;
  };
  Blocks blocks = blocks_for(part(0, 0));
  const Scratch<T> panels(blocks.panel * down * across);
  on_threads(down * across, [&](Index cell) {
    const Index i = cell / across * rows, j = cell % across * columns;
    if (i < x.m && j < x.n) multiply(part(i, j), blocks, panels.data() + cell * blocks.panel);
  });
}

}  // namespace

namespace portable {

template <class T>
void gemm(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into into) {
  const Product<T> x{m, n, k, a, b, c, ldc, into == Into::accumulate};
  if (done_without_work(x)) return;
  const Index work = m * n * k;
  if (work <= small_work && k < least_depth && std::min(m, n) > 1 && multiply_small(x)) return;
  const Plan plan = plan_for(x);
  if (plan.way == Plan::Way::tiles) {
    if (const int threads = threads_for(work, thread_work); threads > 1) return multiply_in_parts(x, plan.blocks, threads);
  }
  const Scratch<T> scratch(plan.scratch());
  if (plan.way == Plan::Way::tiles) return multiply(x, plan.blocks, scratch.data());
  multiply_few(few_of(x), plan, scratch.data(), std::max<Index>(1, thread_elements / k));
}
template void gemm(Index, Index, Index, Matrix<float>, Matrix<float>, float*, Index, Into);
template void gemm(Index, Index, Index, Matrix<double>, Matrix<double>, double*, Index, Into);

template <class T>
void gemm_batched(Index batch, Index m, Index n, Index k, Matrix<T> a, Index a_batch_stride, Matrix<T> b, Index b_batch_stride, T* c) {
  const Product<T> first{m, n, k, a, b, c, n, false};
  const auto at = [&](Index p) {
    Product<T> x = first;
    x.a.data += p * a_batch_stride;
    x.b.data += p * b_batch_stride;
    x.c += p * m * n;
    return x;
  };
  if (batch == 0 || done_without_work(Product<T>{batch * m, n, k, a, b, c, n, false})) return;
  const Index work = m * n * k;
  const int threads = threads_for(batch, std::max<Index>(1, thread_work / work));
  if (threads == 1 || batch < threads) {
    for (Index p = 0; p < batch; ++p) portable::gemm(m, n, k, at(p).a, at(p).b, at(p).c, n, Into::overwrite);
    return;
  }
  const Plan plan = plan_for(first);
  const Index scratch = plan.scratch();
  const Scratch<T> scratches(scratch * threads);
  on_threads(threads, [&](Index t) {
    for (Index p = t * batch / threads; p < (t + 1) * batch / threads; ++p) run_here(at(p), plan, scratches.data() + t * scratch);
  });
}
template void gemm_batched(Index, Index, Index, Index, Matrix<float>, Index, Matrix<float>, Index, float*);
template void gemm_batched(Index, Index, Index, Index, Matrix<double>, Index, Matrix<double>, Index, double*);

template <class T>
void gemm_here(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b, T* c, Index ldc, Into into, T* scratch) {
  const Product<T> x{m, n, k, a, b, c, ldc, into == Into::accumulate};
  if (!done_without_work(x)) run_here(x, plan_for(x), scratch);
}
template void gemm_here(Index, Index, Index, Matrix<float>, Matrix<float>, float*, Index, Into, float*);
template void gemm_here(Index, Index, Index, Matrix<double>, Matrix<double>, double*, Index, Into, double*);

Index gemm_here_scratch(Index m, Index n, Index k) {
  constexpr Index strip = 64, k_limit = 256, n_limit = 512;  // no less than those of any target
  const Index panel = std::min(k, k_limit) * std::min(n + strip, n_limit + strip);
  return std::max(panel, std::min(std::min(m, n), most_few) * k + std::max(m, n));
}

}  // namespace portable
}  // namespace heed::kernels
#endif
