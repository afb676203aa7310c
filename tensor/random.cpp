#include "random.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>

#include "kernels/parallel.h"
#include "raise.h"

namespace heed {
namespace detail {
namespace {

std::mutex& state_mutex() {
  static std::mutex mutex;
  return mutex;
}
RngState state;  // guarded by state_mutex

/// Elements that make a second thread worth its start: a few hundred microseconds of work.
constexpr Index grain = 16384;
/// Numbers that are made at a time, on the stack.
constexpr Index batch = 256;

/// The two 64-bit words at positions 2 * block and 2 * block + 1 of the stream.
std::array<std::uint64_t, 2> words_of(std::uint64_t seed, std::uint64_t block) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto w = philox4x32({low(block), high(block), 0, 0}, {low(seed), high(seed)});
  return {w[0] | std::uint64_t{w[1]} << 32, w[2] | std::uint64_t{w[3]} << 32};
}

/// Calls use(i, word at position + i) for i < n.
template <class F>
void for_words(std::uint64_t seed, std::uint64_t position, Index n, F&& use) {
  Index i = 0;
  if (n > 0 && position % 2 == 1) use(i++, words_of(seed, position++ / 2)[1]);
  for (; i + 1 < n; i += 2, position += 2) {
    const auto words = words_of(seed, position / 2);
    use(i, words[0]);
    use(i + 1, words[1]);
  }
  if (i < n) use(i, words_of(seed, position / 2)[0]);
}

double to_uniform(std::uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

/// In f32 the upper 24 bits, which are exact: rounding to nearest would turn the largest numbers into 1.
template <class T>
T uniform_of(std::uint64_t word) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(word >> 40) * 0x1p-24f;
  else
    return to_uniform(word);
}

/// The upper half of a 128-bit product.
std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + (((middle & 0xffffffff) + a0 * b1) >> 32);
}

Tensor allocate_random(const OpName& op, const Dims& shape, DType dtype) {
  if (!is_float(dtype)) raise<DTypeError>(op, "takes f32 or f64: {}", dtype);
  checked_numel(op, shape, size_of(dtype));
  return make_empty(shape, dtype, op);
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1],
         static_cast<std::uint32_t>(a)};
    k[0] += 0x9E3779B9;  // the golden ratio
    k[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return c;
}

RngState reserve_random(std::uint64_t count) {
  const std::lock_guard lock(state_mutex());
  const RngState begin = state;
  state.offset += count + count % 2;
  return begin;
}

double uniform_at(std::uint64_t seed, std::uint64_t position) { return to_uniform(words_of(seed, position / 2)[position % 2]); }

void uniforms_at(double* out, std::uint64_t seed, std::uint64_t position, Index n) {
  for_words(seed, position, n, [out](Index i, std::uint64_t word) { out[i] = to_uniform(word); });
}

}  // namespace detail

void manual_seed(std::uint64_t seed) { set_rng_state({seed, 0}); }

RngState rng_state() {
  const std::lock_guard lock(detail::state_mutex());
  return detail::state;
}

void set_rng_state(const RngState& state) {
  const std::lock_guard lock(detail::state_mutex());
  detail::state = state;
}

Tensor rand(const Dims& shape, DType dtype) {
  Tensor out = detail::allocate_random("rand", shape, dtype);
  const auto [seed, begin] = detail::reserve_random(static_cast<std::uint64_t>(out.numel()));
  detail::dispatch_float(dtype, [&, seed = seed, begin = begin]<class T>() {
    T* p = out.mutable_data<T>();
    kernels::parallel_for(out.numel(), detail::grain, [=](Index first, Index last) {
      detail::for_words(seed, begin + static_cast<std::uint64_t>(first), last - first,
                        [=](Index i, std::uint64_t word) { p[first + i] = detail::uniform_of<T>(word); });
    });
  });
  return out;
}

Tensor randn(const Dims& shape, DType dtype) {
  Tensor out = detail::allocate_random("randn", shape, dtype);
  const Index n = out.numel();
  const auto [seed, begin] = detail::reserve_random(static_cast<std::uint64_t>(n));
  detail::dispatch_float(dtype, [&, seed = seed, begin = begin]<class T>() {
    T* p = out.mutable_data<T>();
    // Over pairs: no pair is split between threads.
    kernels::parallel_for(n / 2 + n % 2, detail::grain / 2, [=](Index first, Index last) {
      double uniform[detail::batch];
      for (Index at = 2 * first; at < 2 * last; at += detail::batch) {
        const Index count = std::min(detail::batch, 2 * last - at);
        detail::uniforms_at(uniform, seed, begin + static_cast<std::uint64_t>(at), count);
        for (Index i = 0; i < count; i += 2) {
          const double r = std::sqrt(-2 * std::log(1 - uniform[i])), t = 2 * std::numbers::pi * uniform[i + 1];
          p[at + i] = static_cast<T>(r * std::cos(t));
          if (at + i + 1 < n) p[at + i + 1] = static_cast<T>(r * std::sin(t));
        }
      }
    });
  });
  return out;
}

Tensor randint(Index low, Index high, const Dims& shape) {
  if (low >= high) detail::raise<IndexError>("randint: nothing lies between low and high: low {}, high {}", low, high);
  const Index n = detail::checked_numel("randint", shape, sizeof(Index));
  Tensor out = detail::make_empty(shape, i64);
  const auto [seed, begin] = detail::reserve_random(static_cast<std::uint64_t>(n));
  const std::uint64_t bottom = static_cast<std::uint64_t>(low), range = static_cast<std::uint64_t>(high) - bottom;
  Index* p = out.mutable_data<Index>();
  kernels::parallel_for(n, detail::grain, [=, seed = seed, begin = begin](Index first, Index last) {
    // The upper half of word * range is uniform below range.
    detail::for_words(seed, begin + static_cast<std::uint64_t>(first), last - first,
                      [=](Index i, std::uint64_t word) { p[first + i] = static_cast<Index>(bottom + detail::multiply_high(word, range)); });
  });
  return out;
}

}  // namespace heed
