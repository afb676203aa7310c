// What gradient checks cost, beside one forward and backward of the same layer.

#include <benchmark/benchmark.h>
#include <heed/heed.h>

namespace {

using namespace heed;

/// One head at (T, d_model, d_head) in f64, and its input.
struct Subject {
  Subject(Index T, Index d_model, Index d_head) : head(d_model, d_head) {
    nn::to(head, f64);
    x = randn({T, d_model}, f64);
    x.requires_grad_();
    inputs = nn::named_parameters(head);
    inputs.emplace_back("x", x);
  }
  Tensor operator()() const { return head(x, Mask::causal()).output; }

  nn::SingleHeadSelfAttention head;
  Tensor x;
  NamedTensors inputs;
};

void forward_backward(benchmark::State& state) {
  const Subject s(8, 16, 16);
  const Tensor up = randn({8, 16}, f64);
  std::vector<Tensor> inputs;
  for (const auto& [name, t] : s.inputs) inputs.push_back(t);
  for (auto _ : state) benchmark::DoNotOptimize(grad({s()}, inputs, {up}));
}
BENCHMARK(forward_backward)->Name("attention 8,16,16/forward+backward")->Unit(benchmark::kMicrosecond);

void check(benchmark::State& state, GradcheckMode mode) {
  const Subject s(8, 16, 16);
  for (auto _ : state) {
    const GradcheckReport report = gradcheck([&] { return s(); }, s.inputs, {.mode = mode});
    if (!report.ok) state.SkipWithError("a gradient is wrong");
  }
}
BENCHMARK_CAPTURE(check, full, GradcheckMode::full())->Name("attention 8,16,16/gradcheck full")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check, directional, GradcheckMode::directional())->Name("attention 8,16,16/gradcheck directional")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check, sampled, GradcheckMode::sampled())->Name("attention 8,16,16/gradcheck sampled")->Unit(benchmark::kMillisecond);

void second_order(benchmark::State& state) {
  const Subject s(4, 6, 4);
  for (auto _ : state) {
    const GradcheckReport report = gradgradcheck([&] { return s(); }, s.inputs);
    if (!report.ok) state.SkipWithError("a second derivative is wrong");
  }
}
BENCHMARK(second_order)->Name("attention 4,6,4/gradgradcheck full")->Unit(benchmark::kMillisecond);

void causality(benchmark::State& state) {
  const Subject s(8, 16, 16);
  const Tensor x = randn({1, 16, 16}, f64);
  for (auto _ : state) benchmark::DoNotOptimize(nn::check_causality([&](const Tensor& t) { return s.head(t, Mask::causal()).output; }, x).ok);
}
BENCHMARK(causality)->Name("attention 16,16,16/check_causality")->Unit(benchmark::kMillisecond);

}  // namespace
