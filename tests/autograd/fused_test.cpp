#include <gtest/gtest.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/graph.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include "close.h"

// Ops that do in one pass what several ops would do: against those, and what they keep.

namespace heed::test {
namespace {

/// log_softmax, gather and means, as the definition says.
Tensor plain_cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing) {
  const Tensor log_p = log_softmax(logits, -1);
  return -((1 - smoothing) * mean(gather(log_p, 1, unsqueeze(targets, 1))) + smoothing * mean(log_p));
}

TEST(Fused, cross_entropy_is_its_definition) {
  manual_seed(1);
  for (const double smoothing : {0.0, 0.3, 1.0})
    for (const bool strided : {false, true}) {
      const Tensor x = leaf(strided ? randn({37, 9}, f64) * 4 : randn({9, 37}, f64) * 4), logits = strided ? transpose(x, 0, 1) : x;
      const Tensor targets = randint(0, 37, {9});
      const Tensor fused = cross_entropy(logits, targets, {.label_smoothing = smoothing}), plain = plain_cross_entropy(logits, targets, smoothing);
      EXPECT_TRUE(close(fused, plain, 1e-13));
      const Tensor d = grad({fused}, {x}, {}, {.retain_graph = true})[0], want = grad({plain}, {x}, {}, {.retain_graph = true})[0];
      EXPECT_TRUE(close(d, want, 1e-12));
      // The twin that stands in where the backward is differentiated again.
      EXPECT_TRUE(close(grad({fused}, {x}, {}, {.create_graph = true})[0], want, 1e-12));
    }
}

TEST(Fused, cross_entropy_keeps_the_logits_and_two_numbers_a_row) {
  const Tensor logits = exp(leaf(randn({64, 1000})));  // leaves are not counted, and exp keeps the same elements
  EXPECT_EQ(saved_bytes(cross_entropy(logits, zeros({64}, i64))), 64 * 1000 * 4 + 64 * 2 * 4 + 64 * 8);
}

TEST(Fused, linear_is_a_product_and_a_sum) {
  manual_seed(2);
  for (const DType dtype : {f32, f64})
    for (const Dims& shape : {Dims{24}, {5, 24}, {2, 3, 24}, {2, 100, 24}}) {
      const Tensor x = leaf(randn(shape, dtype)), weight = leaf(randn({40, 24}, dtype)), bias = leaf(randn({40}, dtype));
      const Tensor fused = linear(x, weight, bias), plain = matmul(x, transpose(weight, 0, 1)) + bias;
      const double tol = dtype == f64 ? 1e-13 : 1e-5;
      EXPECT_TRUE(close(fused, plain, tol));
      const Tensor g = randn(fused.shape(), dtype);
      const std::vector<Tensor> got = grad({fused}, {x, weight, bias}, {g}), want = grad({plain}, {x, weight, bias}, {g});
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(close(got[i], want[i], tol)) << i;
      EXPECT_TRUE(got[1].is_contiguous()) << "as the weight lies, without a copy";
    }
}

TEST(Fused, linear_takes_operands_as_they_lie) {
  manual_seed(3);
  const Tensor x = randn({6, 4, 3}, f64), weight = randn({3, 5}, f64), bias = randn({10}, f64);
  const Tensor turned = transpose(x, 0, 1), w = transpose(weight, 0, 1), b = slice(bias, 0, 0, 10, 2);
  EXPECT_TRUE(close(linear(turned, w, b), linear(turned.clone(), w.clone(), b.clone()), 1e-14));
  EXPECT_TRUE(close(linear(expand(unsqueeze(x[0], 0), {3, 4, 3}), w), linear(stack({x[0], x[0], x[0]}), w), 1e-14));
}

}  // namespace
}  // namespace heed::test
