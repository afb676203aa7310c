#include "parallel.h"

#include <pthread.h>

#include <atomic>

#include "../error.h"
#include "../raise.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace heed {
namespace {

#ifdef _OPENMP
std::atomic<int>& thread_count() {
  static std::atomic<int> count{std::max(1, omp_get_max_threads())};  // OMP_NUM_THREADS, or the cores that this process may use
  return count;
}
#endif

std::atomic<bool> deterministic{false};
std::atomic<bool> pool_used{false};
std::atomic<bool> pool_lost{false};
std::atomic<bool> forked{false};

}  // namespace

void set_num_threads(int n) {
  if (n < 1) detail::raise<Error>("set_num_threads: needs at least 1 thread: got {}", n);
#ifdef _OPENMP
  thread_count().store(n, std::memory_order_relaxed);
#endif
}

void set_deterministic(bool on) { deterministic.store(on, std::memory_order_relaxed); }

namespace detail {

int num_threads() {
#ifdef _OPENMP
  return thread_count().load(std::memory_order_relaxed);
#else
  return 1;
#endif
}

bool is_deterministic() { return deterministic.load(std::memory_order_relaxed); }

}  // namespace detail

namespace kernels {

void watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    forked.store(true, std::memory_order_relaxed);
    if (pool_used.load(std::memory_order_relaxed)) pool_lost.store(true, std::memory_order_relaxed);
  });
  static_cast<void>(registered);
}

bool is_forked_child() { return forked.load(std::memory_order_relaxed); }

// A forked child has only the thread that forked. OpenMP's runtime does not notice, and waits for the others.
bool threads_are_lost() { return pool_lost.load(std::memory_order_relaxed); }

void note_threads_used() {
  if (pool_used.load(std::memory_order_relaxed)) return;
  watch_forks();
  pool_used.store(true, std::memory_order_relaxed);
}

int usable_threads() {
#ifdef _OPENMP
  const int n = detail::num_threads();
  return n == 1 || omp_in_parallel() || threads_are_lost() ? 1 : n;
#else
  return 1;
#endif
}

int threads_for(Index n, Index grain) {
  const Index deserved = n / std::max(grain, Index{1});
  if (deserved < 2) return 1;
  return static_cast<int>(std::min(deserved, static_cast<Index>(usable_threads())));
}

void parallel_ranges(Index n, int threads, void (*body)(void* context, Index begin, Index end), void* context) {
  if (n <= 0) return;
  const Index ranges = std::clamp(static_cast<Index>(threads), Index{1}, n);
  // The first n % ranges ranges have one item more. Written without n * i, which could overflow.
  const Index size = n / ranges, longer = n % ranges;
  const auto run = [&](Index i) {
    const Index begin = i * size + std::min(i, longer);
    body(context, begin, begin + size + (i < longer ? 1 : 0));
  };
#ifdef _OPENMP
  if (ranges > 1 && !threads_are_lost()) {
    note_threads_used();
    // The runtime may give fewer threads than asked for; the ranges, and with them the bits of a result, stay the same.
#pragma omp parallel num_threads(static_cast <int>(ranges))
    for (Index i = omp_get_thread_num(), step = omp_get_num_threads(); i < ranges; i += step) run(i);
    return;
  }
#endif
  for (Index i = 0; i < ranges; ++i) run(i);
}

}  // namespace kernels
}  // namespace heed
