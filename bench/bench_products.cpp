// Matrix products: heed's own tiles, oneDNN, and whichever of them heed takes; and what a call of oneDNN costs beside its work.

#include <benchmark/benchmark.h>
#include <heed/heed.h>
#include <heed/tensor/kernels/gemm.h>
#include <heed/tensor/kernels/onednn.h>

namespace {

using namespace heed;
using kernels::Into;
using kernels::Matrix;

template <class T>
struct Operands {
  explicit Operands(Index n)
      : a(randn({n, n}, detail::dtype_of<T>())), b(randn({n, n}, detail::dtype_of<T>())), c(empty({n, n}, detail::dtype_of<T>())) {}
  Matrix<T> left() const { return {a.template data<T>(), a.size(1), 1}; }
  Matrix<T> right() const { return {b.template data<T>(), b.size(1), 1}; }
  Tensor a, b, c;
};

void report(benchmark::State& state, Index n) {
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
}

template <class T>
void chosen(benchmark::State& state) {
  const Index n = state.range(0);
  Operands<T> x(n);
  T* c = x.c.template mutable_data<T>();
  for (auto _ : state) {
    kernels::gemm<T>(n, n, n, x.left(), x.right(), c, n);
    benchmark::DoNotOptimize(c[0]);
    benchmark::ClobberMemory();
  }
  report(state, n);
}
BENCHMARK(chosen<float>)->Name("product f32/heed")->RangeMultiplier(2)->Range(4, 1024)->UseRealTime();
BENCHMARK(chosen<double>)->Name("product f64/heed")->RangeMultiplier(2)->Range(4, 1024)->UseRealTime();

void own(benchmark::State& state) {
  const Index n = state.range(0);
  Operands<float> x(n);
  float* c = x.c.mutable_data<float>();
  for (auto _ : state) {
    kernels::portable::gemm<float>(n, n, n, x.left(), x.right(), c, n);
    benchmark::DoNotOptimize(c[0]);
    benchmark::ClobberMemory();
  }
  report(state, n);
}
BENCHMARK(own)->Name("product f32/own tiles")->RangeMultiplier(2)->Range(4, 1024)->UseRealTime();

/// At 4 x 4 x 4 the work is some 20 ns: the rest is what a ready primitive costs to find and to call.
void by_onednn(benchmark::State& state) {
  const Index n = state.range(0);
  Operands<float> x(n);
  float* c = x.c.mutable_data<float>();
  if (!kernels::onednn::available()) return state.SkipWithError("built without oneDNN");
  for (auto _ : state) {
    const bool done = kernels::onednn::gemm_batched(1, n, n, n, x.left(), 0, x.right(), 0, c, n, Into::overwrite);
    if (!done) return state.SkipWithError("oneDNN did not take it");
    benchmark::DoNotOptimize(c[0]);
    benchmark::ClobberMemory();
  }
  report(state, n);
}
BENCHMARK(by_onednn)->Name("product f32/oneDNN")->RangeMultiplier(2)->Range(4, 1024)->UseRealTime();

}  // namespace
