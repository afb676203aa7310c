#pragma once

// Private: what the attention kernels share that is compiled once, not for each SIMD target.

#include <algorithm>
#include <atomic>
#include <limits>

#include "../storage.h"
#include "attention.h"
#include "parallel.h"

namespace heed::kernels {

template <class T>
T* matrix(const Batched<T>& x, Index p) {
  return x.data + x.offsets[static_cast<std::size_t>(p)];
}

template <class T>
struct ForwardCall {
  const AttentionSizes& sizes;
  Batched<const T> q, k, v;
  T scale;
  const AttentionMask<T>& mask;
  const AttentionDropout& dropout;
  Batched<T> out;
  SoftmaxRows<T> rows;
  T* weights = nullptr;
};

/// Keys that go together: their scores for one strip fill half of the first cache or more, their keys and values stay in the second.
inline constexpr Index key_block = 256;

struct Range {
  Index begin, end;
  Index size() const { return end - begin; }
  bool empty() const { return end <= begin; }
};
/// What both have, inside of `a` even when empty.
inline Range intersect(Range a, Range b) {
  const Index begin = std::clamp(b.begin, a.begin, a.end);
  return {begin, std::clamp(b.end, begin, a.end)};
}

/// Which keys and queries of one batch entry see each other, as far as positions and lengths say: for both, intervals.
class Visibility {
 public:
  template <class T>
  Visibility(const AttentionSizes& sizes, const AttentionMask<T>& mask, Index p)
      : Tq_(sizes.Tq),
        Tk_(mask.lengths.empty() ? sizes.Tk : std::clamp(mask.lengths[static_cast<std::size_t>(p)], Index{0}, sizes.Tk)),
        offset_(std::clamp(mask.offset, -far, far)),
        before_(mask.window > 0 ? std::min(mask.window, 2 * far) : 2 * far),
        after_(mask.causal ? 1 : before_) {}

  /// Keys that one of queries [i.begin, i.end) may attend to.
  Range some_keys(Range i) const { return keys(i.begin + offset_ - before_ + 1, i.end - 1 + offset_ + after_); }
  /// Keys that each of them may attend to.
  Range all_keys(Range i) const { return keys(i.end - 1 + offset_ - before_ + 1, i.begin + offset_ + after_); }
  /// Queries that may attend to one of the keys [j.begin, j.end), all of which are below the length.
  Range some_queries(Range j) const { return intersect({0, Tq_}, {j.begin - offset_ - after_ + 1, j.end - 1 - offset_ + before_}); }
  Range queries(Index j) const { return some_queries({j, j + 1}); }
  Index offset() const { return offset_; }

 private:
  /// Beyond every position, yet sums of three do not overflow.
  static constexpr Index far = Index{1} << 60;
  Range keys(Index begin, Index end) const { return intersect({0, Tk_}, {begin, end}); }

  Index Tq_, Tk_, offset_;
  Index before_, after_;  ///< query i sees keys in (i + offset - before, i + offset + after)
};

/// The sum of exp(s - max) over the keys of query i. It is 0 where all scores are -inf: if the query may attend to a key these have overflowed, and
/// NaN says that this is not attention to nothing.
template <class T>
T sum_of_query(const AttentionMask<T>& mask, const Visibility& visible, Index p, Index i, T sum) {
  if (sum != 0) return sum;
  const Range keys = visible.some_keys({i, i + 1});
  for (Index j = keys.begin; j < keys.end; ++j) {
    if (mask.keep.data && !matrix(mask.keep, p)[i * mask.keep.row_stride + j * mask.keep_column_stride]) continue;
    if (mask.bias.data && matrix(mask.bias, p)[i * mask.bias.row_stride + j * mask.bias_column_stride] == -std::numeric_limits<T>::infinity())
      continue;
    return std::numeric_limits<T>::quiet_NaN();
  }
  return sum;
}

/// Blocks of nearly equal size, at most `limit` each.
inline Index equal_block(Index n, Index limit) {
  const Index blocks = std::max<Index>((n + limit - 1) / limit, 1);
  return (n + blocks - 1) / blocks;
}

/// Calls run(task, scratch) for each task in [0, count), which threads take in this order, each with `scratch` elements of its own.
template <class T, class F>
void run_tasks(Index count, int threads, Index scratch, const F& run) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(T));
  scratch = (scratch + line - 1) / line * line;
  const std::size_t bytes = static_cast<std::size_t>(scratch * threads) * sizeof(T);
  T* const memory = static_cast<T*>(detail::allocate(bytes));
  std::atomic<Index> next{0};
  const auto work = [&](Index begin, Index end) {
    for (Index slot = begin; slot < end; ++slot)
      for (Index task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) run(task, memory + slot * scratch);
  };
  using Work = decltype(work);
  if (threads == 1)
    work(0, 1);
  else
    parallel_ranges(
        threads, threads, [](void* w, Index begin, Index end) { (*static_cast<Work*>(w))(begin, end); },
        const_cast<void*>(static_cast<const void*>(&work)));
  detail::deallocate(memory, bytes);
}

}  // namespace heed::kernels
