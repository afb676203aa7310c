#include "steady.h"

#include <heed/tensor/kernels/onednn.h>
#include <heed/tensor/kernels/sanitizers.h>
#include <heed/tensor/storage.h>
#include <sys/resource.h>

#if defined(__GLIBC__) && !defined(HEED_SANITIZED)
#define HEED_COUNT_CALLS
#endif

#ifdef HEED_COUNT_CALLS

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

// Before any constructor runs, these are called: nothing here may need one.
std::atomic<std::int64_t> mallocs{0}, locks{0}, regions{0};
void count(std::atomic<std::int64_t>& n) { n.fetch_add(1, std::memory_order_relaxed); }

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// The names of the C library and of GNU's OpenMP. Defined in a program, they are what all its libraries call.
extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  count(mallocs);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) {
  count(mallocs);
  return __libc_calloc(n, bytes);
}
void* realloc(void* p, std::size_t bytes) {
  count(mallocs);
  return __libc_realloc(p, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count(mallocs);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** p, std::size_t alignment, std::size_t bytes) {
  count(mallocs);
  *p = __libc_memalign(alignment, bytes);
  return *p ? 0 : ENOMEM;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  count(locks);
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  count(locks);
  return real(lock);
}

void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  static auto* const real = next<void(void (*)(void*), void*, unsigned, unsigned)>("GOMP_parallel");
  count(regions);
  real(body, data, threads, flags);
}

}  // extern "C"

#endif  // HEED_COUNT_CALLS

namespace heed::bench {

Steady steady_counters() {
#ifdef HEED_COUNT_CALLS
  const std::int64_t locks_so_far = locks.load();
#endif
  const detail::MemoryCounters memory = detail::memory_counters();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Steady s{.blocks = memory.blocks,
           .system_allocations = memory.system_allocations,
           .page_faults = usage.ru_minflt,
           .primitives = kernels::onednn::cache_counters().misses};
#ifdef HEED_COUNT_CALLS
  locks.store(locks_so_far);  // reading the counters takes a lock itself
  s.mallocs = mallocs.load(), s.locks = locks_so_far;
#if defined(_OPENMP) && !defined(__clang__)
  s.parallel_regions = regions.load();
#endif
#endif
  return s;
}

}  // namespace heed::bench
