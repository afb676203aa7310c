#include <gtest/gtest-spi.h>
#include <heed/autograd/gradcheck.h>
#include <heed/autograd/kernelcheck.h>
#include <heed/autograd/op.h>
#include <heed/autograd/ops.h>
#include <heed/gtest.h>
#include <heed/tensor/random.h>

#include <nlohmann/json.hpp>

#include "close.h"

// How much of a Jacobian is looked at, and how it is told: modes, JSON, the GoogleTest matcher, float against double.

namespace heed::test {
namespace {

using Tensors = std::vector<Tensor>;

/// y = x^2 with a backward that is wrong in element `bad`, by `factor`.
Tensor square_wrong_at(const Tensor& x, Index bad, double factor) {
  return record(
      "square_wrong_at",
      [&] {
        const NoGrad off;
        return x * x;
      }(),
      x,
      [x = saved(x), bad, factor](const BackwardContext&, const Tensor& dy) -> Grads {
        Tensor slope = (2 * x.get()).clone();
        slope.mutable_data<double>()[bad] *= factor;
        return {slope * dy};
      });
}

/// As f32 kernels may be: right in f64, off by a part in a thousand in f32.
Tensor square_wrong_in_f32(const Tensor& x) {
  const double factor = x.dtype() == f32 ? 1.001 : 1.0;
  return record(
      "square_wrong_in_f32",
      [&] {
        const NoGrad off;
        return x * x * factor;
      }(),
      x, [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {2 * x.get() * dy}; });
}

TEST(GradcheckModes, every_mode_passes_what_is_right) {
  manual_seed(1);
  const auto fn = [](const Tensors& in) { return softmax(matmul(in[0], in[1]), -1); };
  for (const GradcheckMode& mode : {GradcheckMode(), GradcheckMode::full(), GradcheckMode::directional(3), GradcheckMode::sampled(5)}) {
    const GradcheckReport report = gradcheck(fn, Tensors{randn({4, 5}, f64), randn({5, 3}, f64)}, {.mode = mode});
    EXPECT_TRUE(report.ok) << report.message;
    EXPECT_EQ(report.entries.size(), 2u);
  }
}

TEST(GradcheckModes, a_wrong_element_is_found_and_located_by_each) {
  manual_seed(2);
  const Tensor x = randn({6, 7}, f64);
  const auto fn = [](const Tensors& in) { return square_wrong_at(in[0], 17, 1.5); };
  for (const GradcheckMode& mode : {GradcheckMode::full(), GradcheckMode::directional(), GradcheckMode::sampled(42)}) {
    const GradcheckReport report = gradcheck(fn, Tensors{x}, {.mode = mode});
    ASSERT_FALSE(report.ok) << report.message;
    const bool located = std::any_of(report.entries.begin(), report.entries.end(), [](const GradcheckEntry& e) {
      return e.index == Dims{2, 3} && e.verdict == "wrong";
    });
    EXPECT_TRUE(located) << report.message;
    EXPECT_NE(report.message.find("node 0, square_wrong_at, gradient of input 0 is wrong"), std::string::npos) << report.message;
  }
}

TEST(GradcheckModes, a_sample_says_what_it_left_out) {
  const GradcheckReport report =
      gradcheck([](const Tensors& in) { return exp(in[0]); }, Tensors{randn({50}, f64)}, {.mode = GradcheckMode::sampled(8)});
  EXPECT_TRUE(report.ok);
  EXPECT_NE(report.message.find("42 of 50 elements were not checked"), std::string::npos) << report.message;
}

TEST(GradcheckModes, a_long_check_falls_back_to_directions_and_says_so) {
  manual_seed(3);
  // Millions of derivatives: full would take minutes.
  const GradcheckReport report =
      gradcheck([](const Tensors& in) { return tanh(matmul(in[0], in[1])); }, Tensors{randn({600, 400}, f64), randn({400, 300}, f64)});
  EXPECT_TRUE(report.ok) << report.message;
  EXPECT_NE(report.message.find("mode directional(4), chosen; full was predicted to take"), std::string::npos) << report.message;
}

TEST(GradcheckModes, the_report_is_json_too) {
  const GradcheckReport report =
      gradcheck([](const Tensors& in) { return square_wrong_at(in[0], 1, -1); }, Tensors{from_vector(std::vector<double>{1, 2, 3}, {3})});
  const auto parsed = nlohmann::json::parse(report.to_json());
  EXPECT_FALSE(parsed["ok"].get<bool>());
  EXPECT_EQ(parsed["message"].get<std::string>(), report.message);
  ASSERT_EQ(parsed["entries"].size(), 1u);
  EXPECT_EQ(parsed["entries"][0]["index"], nlohmann::json::array({1}));
  EXPECT_NEAR(parsed["entries"][0]["analytic"].get<double>(), -4, 1e-9);
  EXPECT_NEAR(parsed["entries"][0]["numeric"].get<double>(), 4, 1e-6);
  EXPECT_EQ(parsed["entries"][0]["verdict"], "wrong");
}

TEST(GradcheckModes, the_matcher_fails_with_the_table) {
  EXPECT_GRADCHECK([](const Tensors& in) { return exp(in[0]); }, Tensors{ones({3}, f64)});
  EXPECT_NONFATAL_FAILURE(EXPECT_GRADCHECK([](const Tensors& in) { return square_wrong_at(in[0], 0, 2); }, Tensors{ones({3}, f64)}),
                          "square_wrong_at");
}

TEST(GradcheckModes, a_graph_recorded_before_stays_valid) {
  // Inputs are moved in place, and their versions put back with their bits.
  Tensor x = randn({4}, f64);
  x.requires_grad_();
  const Tensor before = sum(x * x);
  EXPECT_TRUE(gradcheck([&] { return exp(x); }, NamedTensors{{"x", x}}).ok);
  before.backward();
  EXPECT_TRUE(same(x.grad(), 2 * x.detach()));
}

TEST(Kernelcheck, finds_an_f32_kernel_that_is_off) {
  const KernelcheckReport report = kernelcheck([](const Tensors& in) { return square_wrong_in_f32(in[0]); }, Tensors{rand({5, 4}, f64) + 1});
  EXPECT_FALSE(report.ok);
  ASSERT_EQ(report.entries.size(), 2u);
  EXPECT_FALSE(report.entries[0].ok);
  EXPECT_TRUE(report.entries[1].ok);  // the backward is right
  EXPECT_NE(report.message.find("too far"), std::string::npos);
}

}  // namespace
}  // namespace heed::test
