#include <gtest/gtest.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/ops.h>
#include <heed/nn/causality.h>
#include <heed/nn/self_attention.h>
#include <heed/tensor/random.h>

namespace heed::test {
namespace {

using nn::check_causality;

TEST(Causality, a_causal_layer_is_causal_with_every_kernel) {
  manual_seed(1);
  nn::SingleHeadSelfAttention head(6, 4);
  for (DType dtype : {f32, f64}) {
    nn::to(head, dtype);
    const Tensor x = randn({2, 7, 6}, dtype);
    for (Kernel kernel : {Kernel::composed, Kernel::tiled}) {
      const auto report = check_causality([&](const Tensor& t) { return head(t, {.mask = Mask::causal(), .kernel = kernel}).output; }, x);
      EXPECT_TRUE(report.ok) << report.message;
    }
  }
}

TEST(Causality, the_first_leak_is_named) {
  const Tensor x = randn({1, 6, 3}, f64);
  // Position 2 sees position 4.
  const auto report = check_causality(
      [](const Tensor& t) {
        const Tensor later = select(t, 1, 4) * 1e-6;
        return cat({slice(t, 1, 0, 2), unsqueeze(select(t, 1, 2) + later, 1), slice(t, 1, 3, 6)}, 1);
      },
      x);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.query, 2);
  EXPECT_EQ(report.key, 4);
  EXPECT_NE(report.message.find("position 2 depends on the later input at position 4"), std::string::npos) << report.message;
}

TEST(Causality, a_leak_past_the_graph_is_found_by_its_bits) {
  const Tensor x = randn({1, 5, 3}, f64);
  const auto report = check_causality([](const Tensor& t) { return t + mean(t.detach(), {1}, true); }, x);
  EXPECT_FALSE(report.ok);
  EXPECT_NE(report.message.find("bits change"), std::string::npos) << report.message;
}

TEST(Causality, other_shapes_and_dtypes_are_refused) {
  const auto same = [](const Tensor& t) { return t; };
  EXPECT_THROW(check_causality(same, zeros({3, 4})), ShapeError);
  EXPECT_THROW(check_causality(same, zeros({1, 3, 4}, i64)), DTypeError);
  EXPECT_THROW(check_causality([](const Tensor& t) { return sum(t, {1}); }, zeros({1, 3, 4})), ShapeError);
}

TEST(Causality, random_numbers_go_on_as_if_nothing_had_been) {
  const RngState before = rng_state();
  check_causality([](const Tensor& t) { return t; }, randn({1, 2, 2}));
  const RngState drawn = rng_state();
  set_rng_state(before);
  randn({1, 2, 2});
  EXPECT_EQ(drawn, rng_state());
}

}  // namespace
}  // namespace heed::test
