#include <gtest/gtest.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/kernels/sanitizers.h>
#include <heed/tensor/random.h>
#include <pthread.h>
#include <time.h>

#include <functional>
#include <thread>

#include "close.h"

// Graphs of any depth, and none that outlives its handles.

namespace heed::test {
namespace {

#ifdef HEED_SANITIZED
constexpr int depth = 100'000, rounds = 300;
#else
constexpr int depth = 1'000'000, rounds = 2'000;
#endif

struct Live {
  std::int64_t tensors, nodes, bytes;
  static Live now() {
    const detail::MemoryCounters c = detail::memory_counters();
    return {c.live_tensors, c.live_nodes, c.live_bytes};
  }
  friend bool operator==(const Live&, const Live&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Live& l) {
    return out << l.tensors << " tensors, " << l.nodes << " nodes, " << l.bytes << " bytes";
  }
};

Tensor chain(const Tensor& x, int length) {
  Tensor y = x;
  for (int i = 0; i < length; ++i) y = y + 1;
  return y;
}

/// On a thread with a stack that nothing deep would fit into.
void on_small_stack(void (*body)()) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread;
  const auto call = [](void* f) -> void* {
    reinterpret_cast<void (*)()>(f)();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, call, reinterpret_cast<void*>(body)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

void dropped_without_backward() {
  const Live before = Live::now();
  {
    const Tensor x = leaf(tensor(0, f64));
    Tensor y = chain(x, depth);
    EXPECT_EQ(y.item<double>(), depth);
    EXPECT_EQ(Live::now().nodes, before.nodes + depth + 1);
    y = Tensor();
    EXPECT_EQ(Live::now().nodes, before.nodes + 1);
  }
  EXPECT_EQ(Live::now(), before);
}

void backward_then_dropped() {
  const Live before = Live::now();
  {
    Tensor x = leaf(tensor(0, f64));
    const Tensor y = chain(x, depth);
    y.backward();
    EXPECT_EQ(x.grad().item<double>(), 1);
    EXPECT_EQ(grad({chain(x, depth / 10)}, {x})[0].item<double>(), 1);
  }
  EXPECT_EQ(Live::now(), before);
}

TEST(Memory, a_deep_graph_dropped_without_backward) { dropped_without_backward(); }
TEST(Memory, a_deep_graph_after_backward) { backward_then_dropped(); }
TEST(Memory, a_deep_graph_on_a_small_stack) {
  on_small_stack(dropped_without_backward);
  on_small_stack(backward_then_dropped);
}

TEST(Memory, a_deep_graph_of_gradients) {
  const Live before = Live::now();
  {
    const Tensor x = leaf(tensor(1, f64));
    Tensor y = x;
    for (int i = 0; i < depth / 20; ++i) y = y * 1.0;
    const Tensor d = grad({y * y}, {x}, {}, {.create_graph = true})[0];
    EXPECT_EQ(grad({d}, {x})[0].item<double>(), 2);
  }
  EXPECT_EQ(Live::now(), before);
}

/// Of this thread: what else the machine does is not counted.
double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(Memory, time_is_linear_in_depth) {
  const auto seconds = [](int length) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const double begin = cpu_seconds();
      {
        const Tensor x = leaf(tensor(0, f64));
        chain(x, length).backward();
      }
      best = std::min(best, cpu_seconds() - begin);
    }
    return best;
  };
  const double small = seconds(depth / 20), large = seconds(depth / 5);
  EXPECT_LT(large, 10 * small) << "4 times the nodes; quadratic would be 16 times the time";
}

TEST(Memory, a_wide_graph) {
  const Live before = Live::now();
  {
    Tensor x = leaf(tensor(1, f64));
    std::vector<Tensor> terms;
    for (int i = 0; i < depth / 10; ++i) terms.push_back(x * i);
    sum(stack(terms)).backward();
    const double n = depth / 10;
    EXPECT_EQ(x.grad().item<double>(), n * (n - 1) / 2);
  }
  EXPECT_EQ(Live::now(), before);
}

/// y = f(x) again and again, with and without backward: all is freed, and the peak does not rise.
void expect_flat(const char* what, const std::function<Tensor(const Tensor&)>& f) {
  SCOPED_TRACE(what);
  Tensor x = leaf(rand({25, 40}));
  const auto once = [&](bool backward) {
    const Tensor y = f(x);
    if (!backward) return;
    y.backward(ones(y.shape()));
    x.zero_grad();
  };
  const auto run = [&](int n) {
    for (int i = 0; i < n; ++i) once(i % 2 == 0);
  };
  run(100);
  const Live before = Live::now();
  detail::reset_peak_bytes();
  const std::int64_t peak = detail::memory_counters().peak_bytes, from_system = detail::memory_counters().system_allocations;
  run(rounds);
  EXPECT_EQ(Live::now(), before);
  EXPECT_LE(detail::memory_counters().peak_bytes, peak + 4 * 25 * 40 * 8 + (1 << 20));
#ifndef HEED_SANITIZED
  EXPECT_EQ(detail::memory_counters().system_allocations, from_system) << "the free lists serve what the rounds before have freed";
#else
  (void)from_system;
#endif
}

TEST(Memory, ops_that_save_their_own_output_make_no_cycle) {
  expect_flat("exp", [](const Tensor& x) { return exp(x); });
  expect_flat("tanh", [](const Tensor& x) { return tanh(x); });
  expect_flat("sigmoid", [](const Tensor& x) { return sigmoid(x); });
  expect_flat("sqrt", [](const Tensor& x) { return sqrt(x); });
  expect_flat("softmax", [](const Tensor& x) { return softmax(x, -1); });
  expect_flat("log_softmax", [](const Tensor& x) { return log_softmax(x, -1); });
  expect_flat("layer_norm", [](const Tensor& x) { return layer_norm(x, 40); });
  for (Kernel kernel : {Kernel::composed, Kernel::tiled}) {
    expect_flat("attention", [kernel](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {.kernel = kernel}).output; });
    expect_flat("attention's weights", [kernel](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {.kernel = kernel}).weights; });
  }
}

TEST(Memory, a_gradient_frees_what_it_has_used) {
  Tensor x = leaf(rand({64, 64}));
  const Tensor y = sum(exp(exp(exp(x))));
  const std::int64_t recorded = Live::now().bytes;
  y.backward();
  EXPECT_LT(Live::now().bytes, recorded - 64 * 64 * 4) << "three saved matrices less, one gradient more";
}

TEST(Memory, a_graph_can_be_freed_by_another_thread) {
  const Live before = Live::now();
  {
    Tensor x = leaf(tensor(0, f64)), y = chain(x, 10'000);
    std::thread([y = std::move(y)]() mutable {
      y.backward();
      y = Tensor();
    }).join();
    EXPECT_EQ(x.grad().item<double>(), 1);
  }
  EXPECT_EQ(Live::now(), before);
}

}  // namespace
}  // namespace heed::test
