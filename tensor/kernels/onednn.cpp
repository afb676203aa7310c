#include "onednn.h"

#ifdef HEED_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
// Its own threads are out of reach with TBB and with OpenMP that heed is built without.
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ || (DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP && defined(_OPENMP))
#define HEED_USE_ONEDNN
#endif
#endif

#ifdef HEED_USE_ONEDNN

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <array>
#include <limits>
#include <list>
#include <set>
#include <unordered_map>

#include "../storage.h"
#include "parallel.h"

namespace heed::kernels::onednn {
namespace {

using dnnl::memory;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

/// oneDNN asks OpenMP for the number of threads when it makes a primitive and again when it runs one.
class Threads {
 public:
#ifdef _OPENMP
  explicit Threads(int n) : before_(omp_get_max_threads()) {
    if (n > 1) note_threads_used();
    if (n != before_) omp_set_num_threads(n);
    n_ = n;
  }
  ~Threads() {
    if (n_ != before_) omp_set_num_threads(before_);
  }

 private:
  int before_, n_;
#else
  explicit Threads(int) {}
#endif
};

/// All that a primitive depends on.
struct Key {
  enum Work : Index { product, softmax_forward, softmax_backward };
  std::array<Index, 15> values{};
  friend bool operator==(const Key&, const Key&) = default;
};
struct Hash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t h = 0;
    for (Index v : key.values) {
      h = (h ^ static_cast<std::uint64_t>(v)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    }
    return static_cast<std::size_t>(h);
  }
};

/// A primitive with the memory objects of its operands, in the order in which `run` takes them; none where oneDNN has no fast kernel.
struct Ready {
  dnnl::primitive primitive;
  std::vector<memory> operands;
  std::vector<dnnl_exec_arg_t> arguments;  ///< the operands, then the scratchpad
  memory scratchpad;
  std::size_t scratch_bytes = 0;
  const std::string* implementation = nullptr;

  explicit operator bool() const { return implementation != nullptr; }
};

/// A thread's own, so that nothing is locked and no primitive meets another thread than the one that made it.
class Cache {
 public:
  static constexpr std::size_t limit = 128;

  static Cache& of_this_thread() {
    thread_local Cache cache;
    return cache;
  }
  Cache() = default;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache() {
    if (scratch_) detail::deallocate(scratch_, scratch_bytes_);
  }

  /// What `make` gave for this key, now or earlier.
  template <class F>
  Ready& get(const Key& key, const F& make) {
    if (const auto found = places_.find(key); found != places_.end()) {
      ++counters.hits;
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().second;
    }
    ++counters.misses;
    entries_.emplace_front(key, attempt(make));
    places_.emplace(key, entries_.begin());
    if (entries_.size() > limit) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    counters.size = static_cast<std::int64_t>(entries_.size());
    return entries_.front().second;
  }

  bool run(Ready& ready, std::initializer_list<const void*> data) {
    if (!ready) return false;
    std::size_t i = 0;
    for (const void* p : data) {
      if (dnnl_memory_set_data_handle(ready.operands[i++].get(), const_cast<void*>(p)) != dnnl_success) return false;
    }
    if (ready.scratch_bytes > 0) {
      if (dnnl_memory_set_data_handle(ready.scratchpad.get(), scratch(ready.scratch_bytes)) != dnnl_success) return false;
    }
    if (dnnl_primitive_execute(ready.primitive.get(), stream_.get(), static_cast<int>(ready.arguments.size()), ready.arguments.data()) !=
        dnnl_success)
      return false;
    last_implementation = ready.implementation;
    return true;
  }

  /// From the descriptor of a primitive and of its operands, each with the argument number that oneDNN knows it by.
  template <class Primitive, class Descriptor>
  Ready make(const Descriptor& descriptor, std::initializer_list<std::pair<int, memory::desc>> operands) {
    Ready ready;
    const std::string implementation = descriptor.impl_info_str();
    if (implementation.starts_with("ref")) return ready;
    ready.primitive = Primitive(descriptor);
    for (const auto& [argument, operand] : operands) {
      ready.operands.emplace_back(operand, engine(), nullptr);
      ready.arguments.push_back({argument, ready.operands.back().get()});
    }
    ready.scratchpad = memory(descriptor.scratchpad_desc(), engine(), nullptr);
    ready.scratch_bytes = descriptor.scratchpad_desc().get_size();
    ready.arguments.push_back({DNNL_ARG_SCRATCHPAD, ready.scratchpad.get()});
    ready.implementation = &*names_.insert(implementation).first;
    return ready;
  }

  CacheCounters counters{.limit = limit};
  const std::string* last_implementation = nullptr;

 private:
  template <class F>
  Ready attempt(const F& make) {
    try {
      if (!stream_) stream_ = dnnl::stream(engine());
      return make(*this);
    } catch (const dnnl::error&) {
      return {};
    }
  }

  void* scratch(std::size_t bytes) {
    if (bytes > scratch_bytes_) {
      void* const larger = detail::allocate(bytes);
      if (scratch_) detail::deallocate(scratch_, scratch_bytes_);
      scratch_ = larger;
      scratch_bytes_ = bytes;
    }
    return scratch_;
  }

  std::list<std::pair<Key, Ready>> entries_;
  std::unordered_map<Key, std::list<std::pair<Key, Ready>>::iterator, Hash> places_;
  std::set<std::string> names_;
  dnnl::stream stream_{nullptr};
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

/// With the scratchpad handed over at each call: the default one ties a primitive to the thread that made it.
dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

bool overlap(const float* a, Index a_size, const float* b, Index b_size) {
  const auto begin = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p); };
  return begin(a) < begin(b + b_size) && begin(b) < begin(a + a_size);
}

/// The strides of a rows x columns matrix as oneDNN takes them: one of them 1, the other long enough, and those of size-1 dims in order.
struct Dense {
  Index row = 0, col = 0;
  explicit operator bool() const { return row > 0; }
};
Dense dense(const Matrix<float>& x, Index rows, Index columns) {
  if (columns == 1 || rows == 1) {
    const Index stride = rows == 1 ? x.col_stride : x.row_stride;
    if (rows == 1 && columns == 1) return {1, 1};
    if (stride < 1) return {};
    if (rows == 1) return stride == 1 ? Dense{columns, 1} : Dense{1, stride};
    return stride == 1 ? Dense{1, rows} : Dense{stride, 1};
  }
  if (x.col_stride == 1 && x.row_stride >= columns) return {x.row_stride, 1};
  if (x.row_stride == 1 && x.col_stride >= rows) return {1, x.col_stride};
  return {};
}
Index extent(const Dense& x, Index rows, Index columns) { return (rows - 1) * x.row + (columns - 1) * x.col + 1; }

memory::desc matrices(Index batch, Index rows, Index columns, Index batch_stride, const Dense& x) {
  constexpr auto f32 = memory::data_type::f32;
  if (batch == 1) return {memory::dims{rows, columns}, f32, memory::dims{x.row, x.col}};
  return {memory::dims{batch, rows, columns}, f32, memory::dims{batch_stride, x.row, x.col}};
}

memory::desc rows_of(Index rows, Index columns) { return {memory::dims{rows, columns}, memory::data_type::f32, memory::dims{columns, 1}}; }

bool fits_int(std::initializer_list<Index> values) {
  return std::max(values) <= std::numeric_limits<int>::max();  // its kernels count some of them in int
}

#if DNNL_VERSION_MAJOR < 3
dnnl::matmul::primitive_desc product(const memory::desc& a, const memory::desc& b, const memory::desc& bias, const memory::desc& c,
                                     const dnnl::primitive_attr& attr) {
  return {dnnl::matmul::desc(a, b, bias, c), attr, engine()};
}
using Softmax = dnnl::softmax_v2_forward;
using SoftmaxBackward = dnnl::softmax_v2_backward;
Softmax::primitive_desc softmax_forward(dnnl::prop_kind kind, const memory::desc& x) {
  return {Softmax::desc(kind, dnnl::algorithm::softmax_accurate, x, x, 1), attributes(), engine()};
}
SoftmaxBackward::primitive_desc softmax_backward(const memory::desc& x) {
  const auto forward = softmax_forward(dnnl::prop_kind::forward_training, x);
  return {SoftmaxBackward::desc(dnnl::algorithm::softmax_accurate, x, x, x, 1), attributes(), engine(), forward};
}
#else
dnnl::matmul::primitive_desc product(const memory::desc& a, const memory::desc& b, const memory::desc& bias, const memory::desc& c,
                                     const dnnl::primitive_attr& attr) {
  return {engine(), a, b, bias, c, attr};
}
using Softmax = dnnl::softmax_forward;
using SoftmaxBackward = dnnl::softmax_backward;
Softmax::primitive_desc softmax_forward(dnnl::prop_kind kind, const memory::desc& x) {
  return {engine(), kind, dnnl::algorithm::softmax_accurate, x, x, 1, attributes()};
}
SoftmaxBackward::primitive_desc softmax_backward(const memory::desc& x) {
  const auto forward = softmax_forward(dnnl::prop_kind::forward_training, x);
  return {engine(), dnnl::algorithm::softmax_accurate, x, x, x, 1, forward, attributes()};
}
#endif

/// Whether the softmax of a row is a number. Otherwise it is NaN, but oneDNN's kernels give 0 beside a NaN or an infinity, and for rows of -inf
/// disagree with each other.
bool has_softmax(const float* row, Index n) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  Index odd = 0;  // counted to the end, which compilers turn into vectors
  for (Index j = 0; j < n; ++j) odd += !(row[j] < inf);
  return odd == 0 && std::any_of(row, row + n, [](float v) { return v > -inf; });
}

}  // namespace

bool available() {
  watch_forks();
  return !is_forked_child();
}

std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

bool gemm_batched(Index batch, Index m, Index n, Index k, Matrix<float> a, Index a_batch_stride, Matrix<float> b, Index b_batch_stride, float* c,
                  Index ldc, Into into, const float* bias) {
  if (batch < 1 || m < 1 || n < 1 || k < 1 || !available()) return false;
  const Dense x = dense(a, m, k), y = dense(b, k, n);
  // One row of results may have any `ldc`; oneDNN wants it to be a number that makes sense.
  const Dense z{m == 1 ? n : ldc, 1};
  const Index c_batch_stride = m * ldc;
  if (!x || !y || z.row < n) return false;
  // A vector with gaps between its elements: the kernel of 3.7.2 (brg_matmul) reads and writes it as if there were none.
  if ((m == 1 && x.col != 1) || (n == 1 && ((k > 1 && y.row != 1) || (m > 1 && z.row != 1)))) return false;
  if (batch == 1) {
    a_batch_stride = b_batch_stride = 0;
  } else if (a_batch_stride < 1 || b_batch_stride < 1) {
    return false;
  }
  if (!fits_int({batch, m, n, k, x.row, x.col, y.row, y.col, z.row, a_batch_stride, b_batch_stride, c_batch_stride})) return false;
  const Index last = batch - 1, c_extent = last * c_batch_stride + extent(z, m, n);
  if (overlap(a.data, last * a_batch_stride + extent(x, m, k), c, c_extent) ||
      overlap(b.data, last * b_batch_stride + extent(y, k, n), c, c_extent)) {
    return false;
  }

  const int threads = usable_threads();
  const Key key{{Key::product, threads, into == Into::accumulate, batch, m, n, k, x.row, x.col, a_batch_stride, y.row, y.col, b_batch_stride, z.row,
                 bias != nullptr}};
  const Threads scope(threads);
  Cache& cache = Cache::of_this_thread();
  Ready& ready = cache.get(key, [&](Cache& maker) {
    const memory::desc src = matrices(batch, m, k, a_batch_stride, x), weights = matrices(batch, k, n, b_batch_stride, y);
    const memory::desc dst = matrices(batch, m, n, c_batch_stride, z);
    dnnl::primitive_attr attr = attributes();
    if (into == Into::accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.f);
      attr.set_post_ops(sum);
    }
    if (!bias)
      return maker.make<dnnl::matmul>(product(src, weights, {}, dst, attr), {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}});
    const memory::desc row = batch == 1 ? rows_of(1, n) : memory::desc({1, 1, n}, memory::data_type::f32, memory::dims{n, n, 1});
    return maker.make<dnnl::matmul>(product(src, weights, row, dst, attr),
                                    {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}, {DNNL_ARG_BIAS, row}});
  });
  if (bias) return cache.run(ready, {a.data, b.data, c, bias});
  return cache.run(ready, {a.data, b.data, c});
}

bool softmax(float* y, const float* x, Index rows, Index columns) {
  if (rows < 1 || columns < 1 || !fits_int({rows, columns}) || !available()) return false;
  if (y != x && overlap(y, rows * columns, x, rows * columns)) return false;
  for (Index i = 0; i < rows; ++i)
    if (!has_softmax(x + i * columns, columns)) return false;
  const int threads = usable_threads();
  const Threads scope(threads);
  Cache& cache = Cache::of_this_thread();
  Ready& ready = cache.get(Key{{Key::softmax_forward, threads, rows, columns}}, [&](Cache& maker) {
    const memory::desc matrix = rows_of(rows, columns);
    return maker.make<Softmax>(softmax_forward(dnnl::prop_kind::forward_inference, matrix), {{DNNL_ARG_SRC, matrix}, {DNNL_ARG_DST, matrix}});
  });
  return cache.run(ready, {x, y});
}

bool softmax_backward(float* dx, const float* y, const float* dy, Index rows, Index columns) {
  if (rows < 1 || columns < 1 || !fits_int({rows, columns}) || !available()) return false;
  const Index size = rows * columns;
  if (overlap(dx, size, y, size) || (dx != dy && overlap(dx, size, dy, size))) return false;
  const int threads = usable_threads();
  const Threads scope(threads);
  Cache& cache = Cache::of_this_thread();
  Ready& ready = cache.get(Key{{Key::softmax_backward, threads, rows, columns}}, [&](Cache& maker) {
    const memory::desc matrix = rows_of(rows, columns);
    return maker.make<SoftmaxBackward>(softmax_backward(matrix), {{DNNL_ARG_DST, matrix}, {DNNL_ARG_DIFF_DST, matrix}, {DNNL_ARG_DIFF_SRC, matrix}});
  });
  return cache.run(ready, {y, dy, dx});
}

std::string last_implementation() {
  const std::string* name = Cache::of_this_thread().last_implementation;
  return name ? *name : std::string();
}

CacheCounters cache_counters() { return Cache::of_this_thread().counters; }

}  // namespace heed::kernels::onednn

#else

namespace heed::kernels::onednn {

// There is nothing to call, and heed's own kernels do all the work.

bool available() { return false; }
std::string version() { return {}; }
bool gemm_batched(Index, Index, Index, Index, Matrix<float>, Index, Matrix<float>, Index, float*, Index, Into, const float*) { return false; }
bool softmax(float*, const float*, Index, Index) { return false; }
bool softmax_backward(float*, const float*, const float*, Index, Index) { return false; }
std::string last_implementation() { return {}; }
CacheCounters cache_counters() { return {}; }

}  // namespace heed::kernels::onednn

#endif
