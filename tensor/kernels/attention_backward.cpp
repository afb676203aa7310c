#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/tensor/kernels/attention_backward.cpp"
#include "simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <thread>

#include "attention-inl.h"
#include "attention.h"
#include "attention_call.h"
#include "attention_few-inl.h"

#ifndef HEED_ATTENTION_BACKWARD_ONCE
#define HEED_ATTENTION_BACKWARD_ONCE
namespace heed::kernels {
namespace {

template <class T>
struct BackwardCall {
  const AttentionSizes& sizes;
  Batched<const T> q, k, v;
  T scale;
  const AttentionMask<T>& mask;
  const AttentionDropout& dropout;
  Batched<const T> out;
  SoftmaxRows<const T> rows;
  Batched<const T> dout;
  AttentionGradients<T> gradients;

  bool wants_scores() const { return gradients.dq.data || gradients.dk.data || gradients.dbias; }
};

/// Queries and keys of a cell of one batch entry.
struct Cell {
  Index p;
  Range queries, keys;
};

}  // namespace
}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels {
namespace HWY_NAMESPACE {
namespace {

/// Keys that go together.
constexpr Index tile_keys = 128;
/// Queries that go together: they are what the products for dk and dv sum over before they touch memory.
constexpr Index query_block = 64;
/// Keys that go together where a causal mask ends.
template <class T>
inline constexpr Index diagonal_block = lanes<T> > 8 ? lanes<T> : 2 * lanes<T>;

/// The memory of a thread, in its parts.
template <class T>
struct Parts {
  T *q, *dout, *s, *ds, *shift, *share, *dot, *tile, *kept, *rows;

  /// Lays the parts out from `memory`, or counts their elements from null.
  Index lay_out(const BackwardCall<T>& x, T* memory) {
    constexpr Index width = query_block;
    const Index tile_size = width * std::min(tile_keys, x.sizes.Tk);
    Index used = 0;
    const auto take = [&](T*& part, Index n) {
      part = memory ? memory + used : nullptr;
      used += n;
    };
    take(q, width * x.sizes.d_k);
    take(dout, width * x.sizes.d_v);
    take(s, tile_size);
    take(ds, tile_size);
    take(shift, width);
    take(share, width);
    take(dot, width);
    take(tile, x.mask.has_added() ? tile_size : 0);
    take(kept, x.dropout.p > 0 ? tile_size : 0);
    take(rows, x.mask.has_added() || x.dropout.p > 0 ? tile_size : 0);
    return used;
  }
};

template <class T>
Index scratch_of(const BackwardCall<T>& x) {
  return Parts<T>().lay_out(x, nullptr);
}

template <class T>
HWY_INLINE T dot(const T* a, const T* b, Index n) {
  const Simd<T> d;
  auto sum = hn::Zero(d);
  Index i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  T rest = 0;
  for (; i < n; ++i) rest += a[i] * b[i];
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
}

/// What belongs to a block of queries for all keys: the queries and output gradients, transposed, and the numbers of their rows.
template <class T>
void load_queries(const BackwardCall<T>& x, const TilePlace& at, const Parts<T>& parts) {
  const Index count = at.queries.size(), row = at.p * x.sizes.Tq + at.queries.begin;
  const T* q = matrix(x.q, at.p) + at.queries.begin * x.q.row_stride;
  const T* dout = matrix(x.dout, at.p) + at.queries.begin * x.dout.row_stride;
  const T* out = matrix(x.out, at.p) + at.queries.begin * x.out.row_stride;
  if (!are_few<T>(x.sizes)) pack_queries(q, x.q.row_stride, count, x.sizes.d_k, x.scale, parts.q, at.width);
  if (x.wants_scores()) pack_queries(dout, x.dout.row_stride, count, x.sizes.d_v, T{1}, parts.dout, at.width);
  load_softmax_rows(x.rows, row, count, at.width, parts.shift, parts.share);
  for (Index i = 0; i < at.width; ++i)
    parts.dot[i] = parts.share[i] != 0 && x.wants_scores() ? dot(out + i * x.out.row_stride, dout + i * x.dout.row_stride, x.sizes.d_v) : T{0};
}

/// One tile: queries at.queries, of which those from `first` on may see one of the keys at.keys.
template <class T>
void backward_tile(const BackwardCall<T>& x, const Visibility& visible, const TilePlace& at, Index first, const Parts<T>& parts) {
  const Simd<T> d;
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  const Index n = at.keys.size(), width = at.width, columns = width - first, count = at.queries.size() - first;
  const T* k = matrix(x.k, at.p) + at.keys.begin * x.k.row_stride;
  const T* v = matrix(x.v, at.p) + at.keys.begin * x.v.row_stride;
  T* const s = parts.s;
  T* const ds = parts.ds;

  if (are_few<T>(x.sizes))
    score_few_tile(x.q, x.k, x.sizes, x.scale, at, parts.q, s);
  else
    multiply_tiles(n, columns, d_k, k, x.k.row_stride, Index{1}, parts.q + first, width, s + first, width, false);
  if (x.wants_scores()) multiply_tiles(n, columns, d_v, v, x.v.row_stride, Index{1}, parts.dout + first, width, ds + first, width, false);
  const Range open = visible.all_keys({at.queries.begin + first, at.queries.end});
  if (x.mask.has_added()) load_added(x.mask, at, parts.rows, parts.tile);
  if (x.mask.has_added() || !x.mask.slopes.empty() || at.keys.begin < open.begin || at.keys.end > open.end)
    mask_tile(x.mask, visible, at, first, x.mask.has_added() ? parts.tile : nullptr, s);
  if (x.dropout.p > 0) load_kept(x.dropout, x.sizes, at, parts.rows, parts.kept);

  const auto factor = hn::Set(d, x.gradients.dbias ? T{1} : x.scale);
  for (Index i = first; i < width; i += lanes<T>) {
    const auto shift = hn::Load(d, parts.shift + i), share = hn::Load(d, parts.share + i), dots = hn::Load(d, parts.dot + i);
    for (Index j = 0; j < n; ++j) {
      const Index e = j * width + i;
      auto weight = hn::Mul(exp_of_negative(d, hn::Sub(hn::Load(d, s + e), shift)), share);
      auto dweight = hn::Load(d, ds + e);
      if (x.dropout.p > 0) {
        const auto kept = hn::Load(d, parts.kept + e);
        dweight = hn::IfThenZeroElse(hn::Eq(kept, hn::Zero(d)), hn::Mul(dweight, kept));  // an infinity can be dropped, too
      }
      hn::Store(hn::Mul(hn::Mul(weight, hn::Sub(dweight, dots)), factor), d, ds + e);
      if (x.dropout.p > 0) weight = hn::Mul(weight, hn::Load(d, parts.kept + e));
      hn::Store(weight, d, s + e);
    }
  }

  const Index i0 = at.queries.begin + first;
  const T* q = matrix(x.q, at.p) + i0 * x.q.row_stride;
  const T* dout = matrix(x.dout, at.p) + i0 * x.dout.row_stride;
  if (x.gradients.dbias) {
    copy_transposed(ds + first, width, Index{1}, n, count, x.gradients.dbias + (at.p * Tq + i0) * Tk + at.keys.begin, Tk);
    for (Index e = 0; e < n * width; e += lanes<T>) hn::Store(hn::Mul(hn::Load(d, ds + e), hn::Set(d, x.scale)), d, ds + e);
  }
  const auto& [dq, dk, dv, dbias] = x.gradients;
  if (dv.data)
    multiply_tiles(n, d_v, count, s + first, width, Index{1}, dout, x.dout.row_stride, matrix(dv, at.p) + at.keys.begin * dv.row_stride,
                   dv.row_stride, true);
  if (dk.data)
    multiply_tiles(n, d_k, count, ds + first, width, Index{1}, q, x.q.row_stride, matrix(dk, at.p) + at.keys.begin * dk.row_stride, dk.row_stride,
                   true);
  if (dq.data)
    multiply_tiles(count, d_k, n, ds + first, Index{1}, width, k, x.k.row_stride, matrix(dq, at.p) + i0 * dq.row_stride, dq.row_stride, true);
}

/// Adds what the queries and keys of a cell make of each other.
template <class T>
void backward_cell(const BackwardCall<T>& x, const Cell& cell, T* scratch) {
  Parts<T> parts;
  parts.lay_out(x, scratch);
  const Visibility visible(x.sizes, x.mask, cell.p);
  for (Index i = cell.queries.begin; i < cell.queries.end; i += query_block) {
    TilePlace at{cell.p, {i, std::min(i + query_block, cell.queries.end)}, {}, 0};
    const Range keys = intersect(visible.some_keys(at.queries), cell.keys);
    if (keys.empty()) continue;
    at.width = (at.queries.size() + lanes<T> - 1) / lanes<T> * lanes<T>;
    load_queries(x, at, parts);
    // Up to the diagonal in large blocks, along it in small ones, each with the queries that see its first key.
    const Index diagonal = x.mask.causal ? std::clamp(i + visible.offset(), keys.begin, keys.end) : keys.end;
    const Index step = equal_block(diagonal - keys.begin, tile_keys);
    for (Index j = keys.begin; j < keys.end; j = at.keys.end) {
      at.keys = {j, j < diagonal ? std::min(j + step, diagonal) : std::min(j + diagonal_block<T>, keys.end)};
      const Index first = (std::max(visible.some_queries(at.keys).begin, i) - i) / lanes<T> * lanes<T>;
      backward_tile(x, visible, at, first, parts);
    }
  }
}

Index ScratchF32(const BackwardCall<float>& x) { return scratch_of(x); }
Index ScratchF64(const BackwardCall<double>& x) { return scratch_of(x); }
void CellF32(const BackwardCall<float>& x, const Cell& cell, float* scratch) { backward_cell(x, cell, scratch); }
void CellF64(const BackwardCall<double>& x, const Cell& cell, double* scratch) { backward_cell(x, cell, scratch); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace heed::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {
namespace {

HWY_EXPORT(ScratchF32);
HWY_EXPORT(ScratchF64);
HWY_EXPORT(CellF32);
HWY_EXPORT(CellF64);

template <class T>
Index scratch_of(const BackwardCall<T>& x) {
  if constexpr (sizeof(T) == 4)
    return HWY_DYNAMIC_DISPATCH(ScratchF32)(x);
  else
    return HWY_DYNAMIC_DISPATCH(ScratchF64)(x);
}
template <class T>
void backward_cell(const BackwardCall<T>& x, const Cell& cell, T* scratch) {
  if constexpr (sizeof(T) == 4)
    HWY_DYNAMIC_DISPATCH(CellF32)(x, cell, scratch);
  else
    HWY_DYNAMIC_DISPATCH(CellF64)(x, cell, scratch);
}

/// Multiplications that pay for one more thread.
constexpr Index thread_work = 1 << 20;

/// Cuts the queries and the keys of each batch entry into `groups`, and takes the cells (g, h) of key group g and query group h in phases: phase s
/// has those with (g + h) mod groups = s. A phase touches every group once, so its cells are independent, and under a causal mask all phases have
/// the same work. A group's sums grow from phase to phase: their order, and with it their bits, does not know about threads. No thread waits for a
/// phase to end: a cell starts when its two groups have come through the phase before.
template <class T>
class Schedule {
 public:
  Schedule(const BackwardCall<T>& x, double work) : x_(x) {
    const Index longest = std::max(x.sizes.Tq, x.sizes.Tk);
    // Smaller cells keep more threads busy, larger ones read memory and copy queries less often.
    group_ = std::clamp<Index>((longest * std::min<Index>(x.sizes.batch, 8) / 16 + 63) / 64 * 64, 128, 512);
    groups_ = (longest + group_ - 1) / group_;
    bytes_ = static_cast<std::size_t>(2 * x.sizes.batch * groups_) * sizeof(Count);
    done_ = static_cast<Count*>(detail::allocate(bytes_));
    for (Index i = 0; i < 2 * x.sizes.batch * groups_; ++i) new (done_ + i) Count(0);
    threads_ = threads_for(std::min(tasks(), static_cast<Index>(std::min(work / thread_work, 1e6))), 1);
    // As few batch entries at a time as keep the threads busy: they stay in the cache.
    together_ = threads_ == 1 ? 1 : std::min((4 * threads_ + groups_ - 1) / groups_, x.sizes.batch);
  }
  ~Schedule() { detail::deallocate(done_, bytes_); }
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  Index tasks() const { return x_.sizes.batch * groups_ * groups_; }
  int threads() const { return threads_; }

  void run(Index task, T* scratch) {
    const Index first = task / (together_ * groups_ * groups_) * together_, together = std::min(together_, x_.sizes.batch - first);
    const Index rest = task - first * groups_ * groups_, phase = rest / (together * groups_);
    const Index p = first + rest % (together * groups_) / groups_, g = rest % groups_, h = (phase - g + groups_) % groups_;
    Count& keys_done = done_[2 * (p * groups_ + g)];
    Count& queries_done = done_[2 * (p * groups_ + h) + 1];
    wait(keys_done, phase);
    wait(queries_done, phase);
    const Cell cell{p, part(h, x_.sizes.Tq), part(g, x_.sizes.Tk)};
    if (phase == 0) clear(cell);
    clear_bias(cell);
    if (!cell.queries.empty() && !cell.keys.empty()) backward_cell(x_, cell, scratch);
    keys_done.store(static_cast<int>(phase + 1), std::memory_order_release);
    queries_done.store(static_cast<int>(phase + 1), std::memory_order_release);
  }

 private:
  using Count = std::atomic<int>;

  /// Tasks are taken in order, so whoever is waited for is at work.
  static void wait(const Count& done, Index phase) {
    for (int spins = 0; done.load(std::memory_order_acquire) < phase; ++spins)
      if (spins > 1000) std::this_thread::yield();
  }
  Range part(Index group, Index n) const { return {std::min(group * group_, n), std::min((group + 1) * group_, n)}; }
  static void zero(const Batched<T>& x, Index p, Range rows, Index size) {
    if (!x.data) return;
    T* const first = matrix(x, p) + rows.begin * x.row_stride;
    if (x.row_stride == size)
      std::fill_n(first, rows.size() * size, T{0});
    else
      for (Index i = 0; i < rows.size(); ++i) std::fill_n(first + i * x.row_stride, size, T{0});
  }
  void clear(const Cell& cell) const {
    zero(x_.gradients.dq, cell.p, cell.queries, x_.sizes.d_k);
    zero(x_.gradients.dk, cell.p, cell.keys, x_.sizes.d_k);
    zero(x_.gradients.dv, cell.p, cell.keys, x_.sizes.d_v);
  }
  void clear_bias(const Cell& cell) const {
    if (!x_.gradients.dbias) return;
    for (Index i = cell.queries.begin; i < cell.queries.end; ++i)
      std::fill_n(x_.gradients.dbias + (cell.p * x_.sizes.Tq + i) * x_.sizes.Tk + cell.keys.begin, cell.keys.size(), T{0});
  }

  const BackwardCall<T>& x_;
  Index group_, groups_, together_;
  int threads_;
  std::size_t bytes_;
  Count* done_;
};

}  // namespace

template <class T>
void attention_backward(const AttentionSizes& sizes, Batched<const T> q, Batched<const T> k, Batched<const T> v, T scale,
                        const AttentionMask<T>& mask, const AttentionDropout& dropout, Batched<const T> out, SoftmaxRows<const T> rows,
                        Batched<const T> dout, AttentionGradients<T> gradients) {
  const auto& [batch, Tq, Tk, d_k, d_v] = sizes;
  const BackwardCall<T> x{sizes, q, k, v, scale, mask, dropout, out, rows, dout, gradients};
  const double work =
      static_cast<double>(batch * Tq) * static_cast<double>(Tk) * static_cast<double>(3 * d_k + 2 * d_v + 8) * (mask.causal ? 0.5 : 1.0);
  Schedule<T> schedule(x, work);
  if (schedule.tasks() == 0) return;
  run_tasks<T>(schedule.tasks(), schedule.threads(), scratch_of(x), [&](Index task, T* scratch) { schedule.run(task, scratch); });
}
template void attention_backward(const AttentionSizes&, Batched<const float>, Batched<const float>, Batched<const float>, float,
                                 const AttentionMask<float>&, const AttentionDropout&, Batched<const float>, SoftmaxRows<const float>,
                                 Batched<const float>, AttentionGradients<float>);
template void attention_backward(const AttentionSizes&, Batched<const double>, Batched<const double>, Batched<const double>, double,
                                 const AttentionMask<double>&, const AttentionDropout&, Batched<const double>, SoftmaxRows<const double>,
                                 Batched<const double>, AttentionGradients<double>);

}  // namespace heed::kernels
#endif
