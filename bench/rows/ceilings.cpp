#include "ceilings.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ceilings.cpp"
#include <heed/tensor/kernels/simd.h>
#include <heed/tensor/storage.h>

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace heed::bench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class... V>
HWY_INLINE hn::TFromD<D> multiply_add(D d, int steps, V... sums) {
  const auto factor = hn::Set(d, static_cast<hn::TFromD<D>>(0.75)), term = hn::Set(d, static_cast<hn::TFromD<D>>(0.25));
  for (int i = 0; i < steps; ++i) ((sums = hn::MulAdd(sums, factor, term)), ...);
  auto total = hn::Zero(d);
  ((total = hn::Add(total, sums)), ...);
  return hn::GetLane(total);
}

/// Twelve sums: enough to hide the latency of two units, and they fit into 16 registers beside two constants.
template <class T>
double fma_round(T* values) {
  constexpr int steps = 500'000;
  const hn::ScalableTag<T> d;
  const auto run = [&]<std::size_t... I>(std::index_sequence<I...>) HWY_ATTR { return multiply_add(d, steps, hn::Set(d, values[I])...); };
  values[0] = run(std::make_index_sequence<12>());
  return 2.0 * 12 * steps * static_cast<double>(hn::Lanes(d));
}

template <class T, std::size_t... I>
constexpr std::array<T, sizeof...(I)> inverse_factorials(std::index_sequence<I...>) {
  std::array<T, sizeof...(I)> c{};
  double factorial = 1;
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<T>(1 / factorial), factorial *= static_cast<double>(i + 1);
  return c;
}

/// e^x of arguments in the middle of the range: x = n ln 2 + r, a polynomial of r, n added to the exponent.
template <std::size_t degree, class D, class V = hn::Vec<D>>
HWY_INLINE V plain_exp(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr std::array<T, degree + 1> c = inverse_factorials<T>(std::make_index_sequence<degree + 1>());
  constexpr int mantissa = sizeof(T) == 4 ? 23 : 52;
  const V magic = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 0x1.8p23 : 0x1.8p52));  // adding it leaves a whole number in the low bits
  const V shifted = hn::MulAdd(x, hn::Set(d, static_cast<T>(1.4426950408889634)), magic);
  const V r = hn::NegMulAdd(hn::Sub(shifted, magic), hn::Set(d, static_cast<T>(0.6931471805599453)), x);
  V y = hn::Set(d, c[degree]);
  for (std::size_t i = degree; i-- > 0;) y = hn::MulAdd(y, r, hn::Set(d, c[i]));
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(d, hn::Add(hn::BitCast(bits, y), hn::ShiftLeft<mantissa>(hn::BitCast(bits, shifted))));
}

constexpr std::size_t exp_count = 1024;

template <class T>
double exp_round(T* values) {
  constexpr int repeats = sizeof(T) == 4 ? 16'000 : 4'000;
  constexpr std::size_t degree = sizeof(T) == 4 ? 5 : 11;
  const hn::ScalableTag<T> d;
  T* const out = values + exp_count;
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t at = 0; at < exp_count; at += hn::Lanes(d)) hn::Store(plain_exp<degree>(d, hn::Load(d, values + at)), d, out + at);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // or a compiler might see that all repeats are alike
  }
  return static_cast<double>(exp_count) * repeats;
}

double FmaF32(float* values) { return fma_round(values); }
double FmaF64(double* values) { return fma_round(values); }
double ExpF32(float* values) { return exp_round(values); }
double ExpF64(double* values) { return exp_round(values); }

}  // namespace
}  // namespace heed::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heed::bench {
namespace {

HWY_EXPORT(FmaF32);
HWY_EXPORT(FmaF64);
HWY_EXPORT(ExpF32);
HWY_EXPORT(ExpF64);

/// Memory of one thread.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : bytes_(count * sizeof(T)), data_(static_cast<T*>(detail::allocate(bytes_))) {
    for (std::size_t i = 0; i < count; ++i) data_[i] = static_cast<T>(static_cast<double>(i % 97) / -13);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { detail::deallocate(data_, bytes_); }
  T* data() { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

/// What all threads together do a second, in the median of their rounds, which take milliseconds: long enough to notice who else is at work. `make`
/// gives each thread its own function, which returns what a call did.
template <class Make>
double rate(int threads, double seconds, const Make& make) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::barrier start(threads);
  const auto body = [&](double& result) {
    auto round = make();
    round();
    start.arrive_and_wait();
    std::vector<double> samples;
    const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    do {
      const Clock::time_point before = Clock::now();
      const double done = round();
      samples.push_back(done / std::chrono::duration<double>(Clock::now() - before).count());
    } while (Clock::now() < end);
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
    result = samples[samples.size() / 2];
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < rates.size(); ++i) others.emplace_back([&, i] { body(rates[i]); });
  body(rates[0]);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (double r : rates) sum += r;
  return sum;
}

template <class T, class F>
double rate_in_cache(int threads, double seconds, F round) {
  return rate(threads, seconds,
              [&] { return [buffer = std::make_shared<Buffer<T>>(2 * HWY_NAMESPACE::exp_count), round] { return round(buffer->data()); }; });
}

double copy_rate(int threads, double seconds) {
  const std::size_t count = (std::size_t{64} << 20) / sizeof(float) / static_cast<std::size_t>(threads);
  return rate(threads, seconds, [&] {
    return [from = std::make_shared<Buffer<float>>(count), to = std::make_shared<Buffer<float>>(count), at = std::size_t{0}, count]() mutable {
      const std::size_t part = count / 4;  // of ever other memory
      std::memcpy(to->data() + at, from->data() + at, part * sizeof(float));
      at = (at + part) % (part * 4);
      return 2.0 * static_cast<double>(part * sizeof(float));
    };
  });
}

}  // namespace

// Each call asks for the target anew: the first finds it, which takes a while.
double measure_fma(int threads, double seconds) {
  return rate_in_cache<float>(threads, seconds, [](float* x) { return HWY_DYNAMIC_DISPATCH(FmaF32)(x); });
}

Ceilings measure_ceilings(int threads, double seconds) {
  return {.fma_f32 = measure_fma(threads, seconds),
          .fma_f64 = rate_in_cache<double>(threads, seconds, [](double* x) { return HWY_DYNAMIC_DISPATCH(FmaF64)(x); }),
          .exp_f32 = rate_in_cache<float>(threads, seconds, [](float* x) { return HWY_DYNAMIC_DISPATCH(ExpF32)(x); }),
          .exp_f64 = rate_in_cache<double>(threads, seconds, [](double* x) { return HWY_DYNAMIC_DISPATCH(ExpF64)(x); }),
          .copy = copy_rate(threads, seconds)};
}

}  // namespace heed::bench

#endif  // HWY_ONCE
