// What an op costs beside its arithmetic: time, and blocks from the free lists, of chains of tiny ops.

#include <benchmark/benchmark.h>
#include <heed/heed.h>
#include <heed/tensor/storage.h>

namespace {

using namespace heed;

constexpr int chain_length = 100;

Tensor chain(Tensor x, const Tensor& c) {
  for (int i = 0; i < chain_length; ++i) x = x + c;
  return x;
}

/// Time and free-list blocks per op of the chain.
void report(benchmark::State& state, std::int64_t blocks_before) {
  const double ops = static_cast<double>(state.iterations()) * chain_length;
  state.counters["blocks/op"] = static_cast<double>(detail::memory_counters().blocks - blocks_before) / ops;
  state.counters["s/op"] = benchmark::Counter(ops, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void forward(benchmark::State& state) {
  const NoGrad off;
  const Tensor x = randn({4, 4}), c = randn({4, 4});
  const std::int64_t blocks = detail::memory_counters().blocks;
  for (auto _ : state) benchmark::DoNotOptimize(chain(x, c));
  report(state, blocks);
}
BENCHMARK(forward)->Name("add 4x4/forward");

void recording(benchmark::State& state) {
  Tensor x = randn({4, 4}), c = randn({4, 4});
  x.requires_grad_();
  const std::int64_t blocks = detail::memory_counters().blocks;
  for (auto _ : state) benchmark::DoNotOptimize(chain(x, c));
  report(state, blocks);
}
BENCHMARK(recording)->Name("add 4x4/recording");

void backward(benchmark::State& state) {
  Tensor x = randn({4, 4}), c = randn({4, 4});
  const Tensor up = randn({4, 4});
  x.requires_grad_();
  const std::int64_t blocks = detail::memory_counters().blocks;
  for (auto _ : state) {
    x.zero_grad();
    chain(x, c).backward(up);
    benchmark::DoNotOptimize(x.grad());
  }
  report(state, blocks);
}
BENCHMARK(backward)->Name("add 4x4/forward+backward");

/// Whether a node costs the same in graphs of any size: the fit printed behind is of time over nodes.
void deep_graph(benchmark::State& state) {
  Tensor x = randn({4, 4});
  const Tensor c = randn({4, 4}), up = randn({4, 4});
  x.requires_grad_();
  for (auto _ : state) {
    x.zero_grad();
    Tensor y = x;
    for (std::int64_t i = 0; i < state.range(0); ++i) y = y + c;
    y.backward(up);
    benchmark::DoNotOptimize(x.grad());
  }
  state.SetComplexityN(state.range(0));
  state.counters["s/node"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(deep_graph)->Name("graph/nodes")->RangeMultiplier(10)->Range(100, 1'000'000)->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN);

}  // namespace
