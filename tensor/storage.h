#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace heed::detail {

// Memory: one block per tensor handle, storage and graph node, from per-thread free lists by size class.
// Freed blocks stay with the thread that freed them; sanitizer builds bypass the lists so that every block is watched.

/// 64-byte aligned; never null (std::bad_alloc). `bytes` may be 0.
void* allocate(std::size_t bytes);
/// `bytes` as given to allocate.
void deallocate(void* block, std::size_t bytes) noexcept;
/// Returns all free blocks of this thread to the system.
void release_free_blocks() noexcept;

/// Sums over all threads; differences are what tests and benchmarks look at.
struct MemoryCounters {
  std::int64_t live_bytes = 0;          ///< handed out and not yet returned
  std::int64_t peak_bytes = 0;          ///< largest live_bytes since reset_peak_bytes, seen at blocks of 64 KiB and above
  std::int64_t blocks = 0;              ///< calls of allocate so far
  std::int64_t system_allocations = 0;  ///< those that no free list could serve
  std::int64_t live_tensors = 0;        ///< tensor handles' targets alive
  std::int64_t live_nodes = 0;          ///< graph nodes alive, leaves included
};
MemoryCounters memory_counters();
void reset_peak_bytes();
void count_tensor(int delta) noexcept;
void count_node(int delta) noexcept;

/// Intrusive reference: T has `std::atomic<std::uint32_t> refs` (1 when made) and `void dispose() noexcept`.
template <class T>
class Ref {
 public:
  Ref() = default;
  /// Takes over the one reference that `p` was made with.
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  static Ref share(T* p) {
    if (p) p->refs.fetch_add(1, std::memory_order_relaxed);
    return adopt(p);
  }
  Ref(const Ref& other) : Ref(share(other.p_)) {}
  Ref(Ref&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~Ref() { release(p_); }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  /// Whether this is the only reference, so that nobody else can look.
  bool unique() const { return p_ && p_->refs.load(std::memory_order_acquire) == 1; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  static void release(T* p) noexcept {
    if (!p) return;
    // The last owner needs no atomic write: nobody else can reach the object.
    if (p->refs.load(std::memory_order_acquire) == 1 || p->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) p->dispose();
  }
  T* p_ = nullptr;
};

/// The elements of one or more tensors: a header and the bytes behind it in one block.
/// The version counts in-place writes, so that a value saved for backward can notice that it changed.
class alignas(64) Storage {
 public:
  /// Uninitialized.
  static Ref<Storage> make(std::size_t bytes) { return Ref<Storage>::adopt(new (allocate(sizeof(Storage) + bytes)) Storage(bytes)); }

  void* data() { return this + 1; }
  std::size_t bytes() const { return bytes_; }
  std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }
  /// For those who put back every byte that they changed since version `v`.
  void restore_version(std::uint32_t v) { version_.store(v, std::memory_order_relaxed); }
  /// For storage that takes the place of another in the same tensor: what was saved of the other counts as written to.
  void continue_versions(const Storage& before) { version_.store(before.version() + 1, std::memory_order_relaxed); }

  std::atomic<std::uint32_t> refs{1};
  void dispose() noexcept {
    const std::size_t bytes = sizeof(Storage) + bytes_;
    this->~Storage();
    deallocate(this, bytes);
  }

 private:
  explicit Storage(std::size_t bytes) : bytes_(bytes) {}
  std::atomic<std::uint32_t> version_{0};
  std::size_t bytes_;
};

/// What hangs off a tensor that takes part in differentiation: a leaf's gradient, or the graph node that made the tensor.
/// The folder autograd/ says what is in it; here only that it can be kept and let go.
struct GradData {
  std::atomic<std::uint32_t> refs{1};
  virtual void dispose() noexcept = 0;

 protected:
  ~GradData() = default;
};

}  // namespace heed::detail
