// Softmax over rows and its gradient, f32: heed's own kernel, oneDNN, and whichever of them heed takes, by rows x columns x threads. What
// tensor/kernels/suits_onednn.cpp goes by.

#include <benchmark/benchmark.h>
#include <heed/heed.h>
#include <heed/tensor/kernels/onednn.h>
#include <heed/tensor/kernels/softmax.h>

namespace {

using namespace heed;

struct Rows {
  explicit Rows(const benchmark::State& state)
      : rows(state.range(0)),
        columns(state.range(1)),
        x(randn({rows, columns})),
        y(softmax(x, -1)),
        dy(randn({rows, columns})),
        out(empty({rows, columns})) {
    set_num_threads(static_cast<int>(state.range(2)));
  }
  Index rows, columns;
  Tensor x, y, dy, out;
};

/// `forward(out, x, rows, columns)` returns whether it did the work.
template <class F>
void time_forward(benchmark::State& state, F forward) {
  Rows r(state);
  float* const out = r.out.mutable_data<float>();
  for (auto _ : state) {
    if (!forward(out, r.x.data<float>(), r.rows, r.columns)) return state.SkipWithError("oneDNN does not take it");
    benchmark::DoNotOptimize(out[0]);
    benchmark::ClobberMemory();
  }
}
template <class F>
void time_backward(benchmark::State& state, F backward) {
  Rows r(state);
  float* const out = r.out.mutable_data<float>();
  for (auto _ : state) {
    if (!backward(out, r.y.data<float>(), r.dy.data<float>(), r.rows, r.columns)) return state.SkipWithError("oneDNN does not take it");
    benchmark::DoNotOptimize(out[0]);
    benchmark::ClobberMemory();
  }
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "columns", "threads"})->UseRealTime();
  for (const auto& [rows, columns] : {std::pair<Index, Index>{32, 32},
                                      {128, 128},
                                      {512, 512},
                                      {1024, 16},
                                      {1024, 64},
                                      {1024, 256},
                                      {4096, 32},
                                      {4096, 128},
                                      {2048, 1024},
                                      {8192, 1024},
                                      {24576, 64},
                                      {24576, 256},
                                      {256, 4096}})
    for (const int threads : {1, 2}) b->Args({rows, columns, threads});
}

void own_forward(benchmark::State& state) {
  time_forward(state, [](auto... a) { return kernels::portable::softmax<float>(a...), true; });
}
void onednn_forward(benchmark::State& state) { time_forward(state, kernels::onednn::softmax); }
void chosen_forward(benchmark::State& state) {
  time_forward(state, [](auto... a) { return kernels::softmax<float>(a...), true; });
}
void own_backward(benchmark::State& state) {
  time_backward(state, [](auto... a) { return kernels::portable::softmax_backward<float>(a...), true; });
}
void onednn_backward(benchmark::State& state) { time_backward(state, kernels::onednn::softmax_backward); }
void chosen_backward(benchmark::State& state) {
  time_backward(state, [](auto... a) { return kernels::softmax_backward<float>(a...), true; });
}

BENCHMARK(own_forward)->Name("softmax/own")->Apply(sizes);
BENCHMARK(onednn_forward)->Name("softmax/oneDNN")->Apply(sizes);
BENCHMARK(chosen_forward)->Name("softmax/heed")->Apply(sizes);
BENCHMARK(own_backward)->Name("softmax gradient/own")->Apply(sizes);
BENCHMARK(onednn_backward)->Name("softmax gradient/oneDNN")->Apply(sizes);
BENCHMARK(chosen_backward)->Name("softmax gradient/heed")->Apply(sizes);

}  // namespace
