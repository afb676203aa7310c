#include "storage.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "kernels/sanitizers.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace heed::detail {
namespace {

#ifdef HEED_SANITIZED
constexpr bool use_free_lists = false;
#else
constexpr bool use_free_lists = true;
#endif

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t peak_granularity = std::size_t{64} << 10;
/// Free bytes that a thread keeps for reuse; what is freed beyond that goes back to the system.
constexpr std::size_t kept_bytes_limit = std::size_t{1} << 30;

/// Size classes: four to each power of two, so that at most a fifth of a block is wasted.
constexpr std::size_t class_count = 4 * 48;
struct SizeClass {
  std::size_t index, bytes;
};
SizeClass size_class(std::size_t bytes) {
  const std::size_t units = std::max<std::size_t>((bytes + alignment - 1) / alignment, 1);
  if (units <= 4) return {units - 1, units * alignment};
  const std::size_t log = static_cast<std::size_t>(std::bit_width(units - 1)) - 1;  // 2^log < units <= 2^(log + 1)
  const std::size_t steps = (units - 1 - (std::size_t{1} << log)) >> (log - 2);     // quarters of 2^log: 0..3
  return {4 * (log - 1) + steps, ((std::size_t{1} << log) + ((steps + 1) << (log - 2))) * alignment};
}

void* system_allocate(std::size_t bytes) {
  const std::size_t align = bytes >= huge_page ? huge_page : alignment;
  void* p = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!p) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (bytes >= huge_page) madvise(p, bytes, MADV_HUGEPAGE);  // first touch of small pages costs more than the work on them
#endif
  return p;
}

/// A counter that one thread writes and any may read; an increment is a plain add.
class Count {
 public:
  void add(std::int64_t n) { n_.store(n_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  std::int64_t get() const { return n_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> n_{0};
};
struct Counts {
  Count live_bytes, blocks, system_allocations, live_tensors, live_nodes;
};

/// All threads' counts; those of ended threads are folded into `ended`. Never destroyed: tensors of static lifetime outlive it otherwise.
struct Registry {
  std::mutex mutex;
  std::vector<Counts*> threads;
  MemoryCounters ended;
  /// Live bytes as threads told them last, when they took or gave back a large block: so that peaks are noted without the lock.
  std::atomic<std::int64_t> told{0};
  std::atomic<std::int64_t> peak{0};

  /// What is live now as far as is known.
  std::int64_t tell(std::int64_t change) { return told.fetch_add(change, std::memory_order_relaxed) + change; }

  static void fold(MemoryCounters& sum, const Counts& c) {
    sum.live_bytes += c.live_bytes.get();
    sum.blocks += c.blocks.get();
    sum.system_allocations += c.system_allocations.get();
    sum.live_tensors += c.live_tensors.get();
    sum.live_nodes += c.live_nodes.get();
  }
  MemoryCounters sum() {
    const std::lock_guard lock(mutex);
    MemoryCounters s = ended;
    for (const Counts* c : threads) fold(s, *c);
    return s;
  }
  static Registry& get() {
    static Registry* r = new Registry;
    return *r;
  }
};

struct FreeBlock {
  FreeBlock* next;
};

/// What a thread has of its own.
struct Heap {
  std::array<FreeBlock*, class_count> lists{};
  std::size_t kept_bytes = 0;
  std::int64_t told_bytes = 0;  ///< of counts.live_bytes
  Counts counts;

  std::int64_t tell_live_bytes() {
    const std::int64_t live = counts.live_bytes.get();
    return Registry::get().tell(live - std::exchange(told_bytes, live));
  }
  Heap() {
    Registry& r = Registry::get();
    const std::lock_guard lock(r.mutex);
    r.threads.push_back(&counts);
  }
  ~Heap();
  void release_blocks() {
    for (FreeBlock*& list : lists)
      while (list) std::free(std::exchange(list, list->next));
    kept_bytes = 0;
  }
};

/// Trivially destructible, so that it can still be asked after the thread's heap is gone.
enum class HeapState : std::uint8_t { unborn, alive, gone };
thread_local HeapState heap_state = HeapState::unborn;
thread_local Heap* heap_pointer = nullptr;

Heap::~Heap() {
  heap_state = HeapState::gone;
  heap_pointer = nullptr;
  release_blocks();
  tell_live_bytes();
  Registry& r = Registry::get();
  const std::lock_guard lock(r.mutex);
  Registry::fold(r.ended, counts);
  std::erase(r.threads, &counts);
}

Heap* make_heap() {
  if (heap_state == HeapState::gone) return nullptr;
  thread_local Heap heap;
  heap_state = HeapState::alive;
  heap_pointer = &heap;
  return heap_pointer;
}

/// Null in a thread that is ending, whose thread-local objects are destroyed already.
inline Heap* heap() { return heap_pointer ? heap_pointer : make_heap(); }

/// For threads without a heap.
template <class F>
void count_late(F&& f) {
  Registry& r = Registry::get();
  const std::lock_guard lock(r.mutex);
  f(r.ended);
}

void note_peak(std::int64_t live) {
  Registry& r = Registry::get();
  std::int64_t peak = r.peak.load(std::memory_order_relaxed);
  while (live > peak && !r.peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

}  // namespace

void* allocate(std::size_t bytes) {
  const SizeClass c = size_class(bytes);
  const std::int64_t counted = static_cast<std::int64_t>(c.bytes);
  Heap* h = heap();
  if (!h) {
    void* p = system_allocate(c.bytes);
    count_late([&](MemoryCounters& m) { m.live_bytes += counted, ++m.blocks, ++m.system_allocations; });
    note_peak(Registry::get().tell(counted));
    return p;
  }
  void* p;
  if (FreeBlock*& list = h->lists[c.index]; use_free_lists && list) {
    p = std::exchange(list, list->next);
    h->kept_bytes -= c.bytes;
  } else {
    p = system_allocate(c.bytes);
    h->counts.system_allocations.add(1);
  }
  h->counts.blocks.add(1);
  h->counts.live_bytes.add(counted);
  if (c.bytes >= peak_granularity) note_peak(h->tell_live_bytes());
  return p;
}

void deallocate(void* block, std::size_t bytes) noexcept {
  const SizeClass c = size_class(bytes);
  Heap* h = heap();
  if (!h) {
    std::free(block);
    count_late([&](MemoryCounters& m) { m.live_bytes -= static_cast<std::int64_t>(c.bytes); });
    Registry::get().tell(-static_cast<std::int64_t>(c.bytes));
    return;
  }
  h->counts.live_bytes.add(-static_cast<std::int64_t>(c.bytes));
  if (c.bytes >= peak_granularity) h->tell_live_bytes();
  if (!use_free_lists || h->kept_bytes + c.bytes > kept_bytes_limit) {
    std::free(block);
    return;
  }
  FreeBlock* free_block = static_cast<FreeBlock*>(block);
  free_block->next = std::exchange(h->lists[c.index], free_block);
  h->kept_bytes += c.bytes;
}

void release_free_blocks() noexcept {
  if (Heap* h = heap()) h->release_blocks();
}

MemoryCounters memory_counters() {
  MemoryCounters sum = Registry::get().sum();
  sum.peak_bytes = std::max(Registry::get().peak.load(std::memory_order_relaxed), sum.live_bytes);
  return sum;
}

void reset_peak_bytes() { Registry::get().peak.store(Registry::get().sum().live_bytes, std::memory_order_relaxed); }

void count_tensor(int delta) noexcept {
  if (Heap* h = heap())
    h->counts.live_tensors.add(delta);
  else
    count_late([&](MemoryCounters& m) { m.live_tensors += delta; });
}

void count_node(int delta) noexcept {
  if (Heap* h = heap())
    h->counts.live_nodes.add(delta);
  else
    count_late([&](MemoryCounters& m) { m.live_nodes += delta; });
}

}  // namespace heed::detail
