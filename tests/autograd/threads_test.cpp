#include <gtest/gtest.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/parallel.h>
#include <heed/tensor/random.h>

#include <atomic>
#include <thread>

#include "close.h"

namespace heed::test {
namespace {

/// Runs `body(i)` on `n` threads at once.
template <class F>
void at_once(int n, F body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([=] { body(i); });
  for (std::thread& t : threads) t.join();
}

class Threads : public testing::Test {
 protected:
  ~Threads() override {
    set_num_threads(before_);
    set_deterministic(false);
  }
  int before_ = detail::num_threads();
};

/// A small loss of shared parameters: its value and the parameters' gradients.
std::vector<Tensor> loss_and_gradients(const Tensor& x, const Tensor& w, const Tensor& gain) {
  const Tensor h = layer_norm(matmul(x, w), w.size(1), gain);
  const Tensor loss = mean(square(scaled_dot_product_attention(h, h, h, {.mask = Mask::causal()}).output));
  std::vector<Tensor> all = grad({loss}, {w, gain});
  all.push_back(loss.detach());
  return all;
}

TEST_F(Threads, separate_graphs_over_shared_parameters) {
  const Tensor w = leaf(randn({12, 16}, f64)), gain = leaf(rand({16}, f64));
  std::vector<Tensor> inputs;
  std::vector<std::vector<Tensor>> expected;
  for (int i = 0; i < 8; ++i) inputs.push_back(randn({5, 12}, f64)), expected.push_back(loss_and_gradients(inputs.back(), w, gain));
  std::atomic<int> wrong{0};
  at_once(8, [&](int i) {
    const std::size_t n = static_cast<std::size_t>(i);
    for (int round = 0; round < 30; ++round) {
      const std::vector<Tensor> got = loss_and_gradients(inputs[n], w, gain);
      for (std::size_t k = 0; k < got.size(); ++k)
        if (!close(got[k], expected[n][k], 1e-12)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(Threads, backward_of_a_graph_that_another_thread_recorded) {
  Tensor x = leaf(tensor(3, f64)), y;
  std::thread([&] { y = x * x; }).join();
  std::thread([&] { y.backward(); }).join();
  EXPECT_TRUE(holds(x.grad(), {6}));
}

TEST_F(Threads, guards_of_one_thread_do_not_touch_another) {
  const Tensor x = leaf(tensor({-1, 4}, f64));
  at_once(4, [&](int i) {
    for (int round = 0; round < 200; ++round) {
      if (i % 2) {
        const NoGrad off;
        EXPECT_FALSE((x * 2).requires_grad());
      } else {
        EXPECT_TRUE((x * 2).requires_grad());
        if (i == 2) {
          const AnomalyMode guard;
          EXPECT_THROW((void)log(x), GradError);
        } else {
          EXPECT_NO_THROW((void)log(x));
        }
      }
    }
  });
}

/// Forward and backward of ops of odd sizes, large enough for several threads.
std::vector<Tensor> odd_sizes(DType dtype) {
  manual_seed(4);
  Tensor x = randn({253, 517}, dtype), w = randn({517, 301}, dtype), gain = rand({517}, dtype);
  for (Tensor* t : {&x, &w, &gain}) t->requires_grad_();
  const Tensor y = matmul(softmax(layer_norm(x, 517, gain), -1), w), loss = sum(y * y) + sum(mean(x, 0));
  std::vector<Tensor> all = grad({loss}, {x, w, gain});
  all.push_back(y.detach()), all.push_back(loss.detach());
  return all;
}

/// Sums that more than one thread adds to: the gradients of keys and values in tiled attention, and of rows that ids share.
std::vector<Tensor> shared_sums(DType dtype) {
  manual_seed(5);
  Tensor q = randn({3, 133, 24}, dtype), k = randn({3, 201, 24}, dtype), v = randn({3, 201, 40}, dtype), table = randn({61, 40}, dtype);
  for (Tensor* t : {&q, &k, &v, &table}) t->requires_grad_();
  const AttentionOptions options{.mask = Mask::causal(68), .need_weights = false, .kernel = Kernel::tiled};
  const Tensor mixed = scaled_dot_product_attention(q, k, v, options).output, rows = embedding(randint(0, 61, {3, 133}), table);
  const Tensor loss = sum(square(mixed - rows));
  std::vector<Tensor> all = grad({loss}, {q, k, v, table});
  all.push_back(mixed.detach()), all.push_back(loss.detach());
  return all;
}

TEST_F(Threads, the_same_number_of_threads_gives_the_same_bits) {
  for (DType dtype : {f32, f64})
    for (auto work : {odd_sizes, shared_sums})
      for (int n : {1, 2, 4}) {
        set_num_threads(n);
        const std::vector<Tensor> first = work(dtype), second = work(dtype);
        for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(same(second[i], first[i])) << dtype << ", " << n << " threads, result " << i;
      }
}

TEST_F(Threads, other_numbers_of_threads_agree_up_to_rounding_and_exactly_when_asked_to) {
  for (DType dtype : {f32, f64})
    for (auto work : {odd_sizes, shared_sums})
      for (bool exactly : {false, true}) {
        set_deterministic(exactly);
        set_num_threads(1);
        const std::vector<Tensor> alone = work(dtype);
        for (int n : {2, 3, 4}) {
          set_num_threads(n);
          const std::vector<Tensor> together = work(dtype);
          for (std::size_t i = 0; i < alone.size(); ++i)
            EXPECT_TRUE(close(together[i], alone[i], exactly ? 0 : 100 * epsilon(dtype))) << dtype << ", " << n << " threads, result " << i;
        }
      }
}

}  // namespace
}  // namespace heed::test
