#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <heed/heed.h>
#include <heed/tensor/kernels/onednn.h>
#include <heed/tensor/kernels/softmax.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <thread>

#include "close.h"
#include "op_table.h"

// One switch says whose code computes f32 products and softmax.

namespace heed::test {
namespace {

class Backends : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::onednn::available()) GTEST_SKIP() << "this build has no oneDNN";
  }
};

/// The implementation of oneDNN that `work` reached last, in a thread that had used none; empty for none.
template <class F>
std::string reached(Backend backend, const F& work) {
  std::string name;
  std::thread([&] {
    const BackendGuard guard(backend);
    work();
    name = kernels::onednn::last_implementation();
  }).join();
  return name;
}

struct Work {
  const char* name;
  std::function<void()> run;
};

/// Each with one call that a backend may serve.
std::vector<Work> all_work() {
  manual_seed(1);
  const Tensor x = randn({24, 40}), w = randn({40, 16}), batch = randn({3, 24, 40}), weight = randn({16, 40}), bias = randn({16}),
               dy = randn({24, 40});
  const auto backward_of_softmax = [=] {
    Tensor leaf = x.clone().requires_grad_();
    const Tensor y = [&] {
      const BackendGuard portable(Backend::portable);
      return softmax(leaf, -1);
    }();
    y.backward(dy);
  };
  return {{"matmul", [=] { matmul(x, w); }},
          {"matmul of small matrices", [=] { matmul(slice(x, 0, 0, 2), slice(w, 1, 0, 3).contiguous()); }},
          {"matmul of a batch", [=] { matmul(batch, transpose(batch, 1, 2)); }},
          {"linear", [=] { linear(x, weight, bias); }},
          {"linear without bias", [=] { linear(x, weight); }},
          {"softmax", [=] { softmax(x, -1); }},
          {"softmax over another dim", [=] { softmax(x, 0); }},
          {"softmax's gradient", backward_of_softmax},
          {"attention, composed", [=] { scaled_dot_product_attention(batch, batch, batch, {.mask = Mask::causal()}); }}};
}

/// oneDNN 2.6 has a fast gradient of softmax with AVX-512 only.
bool has_softmax_gradient() {
  const std::vector<float> y(64, .25f), dy(64, 1.f);
  std::vector<float> dx(64);
  return kernels::onednn::softmax_backward(dx.data(), y.data(), dy.data(), 16, 4);
}

TEST_F(Backends, onednn_serves_products_and_softmax_and_their_gradients) {
  for (const Work& work : all_work()) {
    if (work.name == std::string("softmax's gradient") && !has_softmax_gradient()) continue;
    const std::string name = reached(Backend::onednn, work.run);
    EXPECT_FALSE(name.empty() || name.starts_with("ref")) << work.name << ": " << name;
  }
}

TEST_F(Backends, portable_leaves_onednn_alone) {
  for (const Work& work : all_work()) EXPECT_EQ(reached(Backend::portable, work.run), "") << work.name;
  const Tensor large = randn({512, 512});
  const auto product = [&] { matmul(large, large); };
  EXPECT_EQ(reached(Backend::portable, product), "");
  EXPECT_NE(reached(Backend::automatic, product), "") << "large products are oneDNN's";
}

TEST_F(Backends, f64_is_heeds_own) {
  const Tensor x = randn({64, 64}, f64);
  EXPECT_EQ(reached(Backend::onednn, [&] { softmax(matmul(x, x), -1); }), "");
}

// Its sums run in an order that depends on the number of threads; softmax's rows are each a thread's own.
TEST_F(Backends, deterministic_products_are_heeds_own) {
  const Tensor x = randn({64, 64});
  set_deterministic(true);
  EXPECT_EQ(reached(Backend::onednn, [&] { matmul(x, x); }), "");
  set_deterministic(false);
}

TEST_F(Backends, belong_to_a_thread_and_end_with_their_guard) {
  EXPECT_EQ(detail::backend(), Backend::automatic);
  {
    const BackendGuard outer(Backend::portable);
    {
      const BackendGuard inner(Backend::onednn);
      EXPECT_EQ(detail::backend(), Backend::onednn);
      std::thread([] { EXPECT_EQ(detail::backend(), Backend::automatic); }).join();
    }
    EXPECT_EQ(detail::backend(), Backend::portable);
  }
  EXPECT_EQ(detail::backend(), Backend::automatic);
}

/// Every op that multiplies or is a softmax, both ways, against f64.
TEST_F(Backends, agree_with_f64_in_every_row) {
  std::size_t rows = 0;
  for (const ops::OpRow& row : ops::op_table()) {
    const bool concerned = row.name == "matmul" || row.name == "linear" || row.name.find("softmax") != std::string::npos ||
                           row.name.find("attention") != std::string::npos;
    if (!concerned) continue;
    ++rows;
    for (const Backend backend : {Backend::onednn, Backend::portable}) {
      const BackendGuard guard(backend);
      const KernelcheckReport report =
          kernelcheck([&](const ops::Tensors& in) -> std::vector<Tensor> { return row.function(in); }, ops::make_inputs(row, f64));
      EXPECT_TRUE(report.ok) << row << (backend == Backend::onednn ? ", oneDNN: " : ", portable: ") << report.message;
    }
  }
  EXPECT_GT(rows, 40u);
}

// oneDNN's own kernel forgets a NaN in all but its place, and an infinity likewise.
TEST_F(Backends, agree_about_rows_that_have_no_softmax) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Index columns : {1, 3, 16, 33, 64, 300})
    for (const float odd : {nan, inf, -inf})
      for (const Index at : {Index{0}, columns / 2, columns - 1}) {
        Tensor x = randn({5, columns});
        x.mutable_data<float>()[2 * columns + at] = odd;
        const Tensor want = [&] {
          const BackendGuard guard(Backend::portable);
          return softmax(x, -1);
        }();
        for (const Backend backend : {Backend::onednn, Backend::automatic}) {
          const BackendGuard guard(backend);
          const Tensor y = softmax(x, -1);
          for (Index r = 0; r < 5; ++r)
            for (Index j = 0; j < columns; ++j) {
              const float got = y[r][j].item<float>(), expected = want[r][j].item<float>();
              EXPECT_TRUE(std::isnan(expected) ? std::isnan(got) : std::abs(got - expected) < 1e-6f)
                  << odd << " at " << at << " of " << columns << ": row " << r << ", column " << j << ": " << got << ", want " << expected;
            }
        }
      }
}

TEST_F(Backends, a_forked_child_cannot_ask_for_onednn) {
  matmul(ones({300, 304}), ones({304, 304}));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    try {
      const BackendGuard guard(Backend::onednn);
      _exit(1);
    } catch (const Error& e) {
      _exit(std::string(e.what()).find("forked") == std::string::npos ? 2 : detail::backend() == Backend::automatic ? 0 : 3);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(BackendsWithoutOneDnn, say_so) {
  if (!kernels::onednn::version().empty()) GTEST_SKIP() << "this build has oneDNN";
  try {
    const BackendGuard guard(Backend::onednn);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("Backend::onednn: this build has no oneDNN"));
  }
  const BackendGuard guard(Backend::portable);
  EXPECT_EQ(sum(matmul(ones({2, 3}), ones({3, 2}))).item<float>(), 12);
}

}  // namespace
}  // namespace heed::test
