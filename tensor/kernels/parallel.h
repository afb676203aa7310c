#pragma once

#include <algorithm>

#include "../dtype.h"
#include "../parallel.h"

namespace heed::kernels {

/// Runs `body(context, begin, end)` over [0, n) in at most `threads` contiguous ranges, one a thread. The ranges follow from n and `threads` alone.
/// Nothing may throw or allocate in `body`.
void parallel_ranges(Index n, int threads, void (*body)(void* context, Index begin, Index end), void* context);

/// How many threads an op may use here: num_threads(), but 1 inside a parallel region and where `threads_are_lost()`.
int usable_threads();

/// How many threads `n` items deserve when one thread should have at least `grain` of them.
int threads_for(Index n, Index grain);

/// Whether this process was forked from one that had used its threads: they are not here, and waiting for them would never end.
bool threads_are_lost();
/// For regions that heed does not open itself.
void note_threads_used();

/// From the first call of watch_forks or the first use of threads on, a forked child can tell that it is one.
void watch_forks();
bool is_forked_child();

/// body(begin, end) over [0, n), on one thread unless there are at least two grains.
/// A template so that the serial path is a plain call: no region is entered, nothing is allocated.
template <class F>
void parallel_for(Index n, Index grain, F&& body) {
  const int threads = n < 2 * grain ? 1 : threads_for(n, grain);
  if (threads == 1) {
    if (n > 0) body(Index{0}, n);
    return;
  }
  using Body = std::remove_reference_t<F>;
  parallel_ranges(
      n, threads, [](void* context, Index begin, Index end) { (*static_cast<Body*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace heed::kernels
