// Tokens a second that a GPT writes, greedily, with and without its cache, and how the time grows with the length.

#include <benchmark/benchmark.h>
#include <heed/heed.h>

namespace {

using namespace heed;

/// 4 layers, 4 heads, C = 128: the small model of the report's `gpt` row, with room for the longest text here.
const nn::GPT& model() {
  static const nn::GPT m({.vocab_size = 65, .block_size = 1024, .n_layer = 4, .n_head = 4, .n_embd = 128, .dropout = 0});
  return m;
}

void generation(benchmark::State& state, bool use_cache) {
  const Index n = state.range(0);
  const Tensor prompt = randint(0, 65, {1});
  for (auto _ : state) benchmark::DoNotOptimize(nn::generate(model(), prompt, {.max_new_tokens = n - 1, .temperature = 0, .use_cache = use_cache}));
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations() * (n - 1)), benchmark::Counter::kIsRate);
  state.SetComplexityN(n);
}
BENCHMARK_CAPTURE(generation, cache, true)
    ->Name("generate/cache")
    ->RangeMultiplier(2)
    ->Range(64, 1024)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Complexity();
BENCHMARK_CAPTURE(generation, no_cache, false)
    ->Name("generate/no cache")
    ->RangeMultiplier(2)
    ->Range(64, 512)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Complexity();

}  // namespace
