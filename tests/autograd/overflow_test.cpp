#include <gtest/gtest.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/ops.h>

#include <cmath>
#include <limits>

#include "close.h"

// What overflows on the way to a result that fits: sums whose parts cancel, squares under a mean, differences in a product.

namespace heed::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// The largest number of the dtype, and what it is held to.
double top(DType dtype) { return dtype == f32 ? static_cast<double>(std::numeric_limits<float>::max()) : std::numeric_limits<double>::max(); }

Tensor gradient(const Tensor& y, const Tensor& x, const Tensor& dy = {}) {
  return grad({y}, {x}, {dy.defined() ? dy : ones(y.shape(), y.dtype())})[0];
}

class Overflow : public testing::TestWithParam<DType> {
 protected:
  DType dtype = GetParam();
  double big = top(dtype);
  /// Elements as multiples of the largest number.
  Tensor parts(const std::vector<double>& values) const {
    std::vector<double> out;
    for (double v : values) out.push_back(v * big);
    return from_vector(out, {static_cast<Index>(out.size())}).to(dtype);
  }
  testing::AssertionResult near(const Tensor& t, const std::vector<double>& expected) const {
    return close(t, from_vector(expected, t.shape()), 16 * epsilon(dtype));
  }
};

TEST_P(Overflow, sums_in_every_layout) {
  // Rows and columns of these, few and many, dense and not.
  const Tensor row = parts({1, 0.75, -1, -0.5, 0.5, -0.25});  // 0.5
  for (Index copies : {1, 3, 300})
    for (Index length : {1, 50, 9000}) {
      if (copies * length > 30000) continue;
      const Tensor rows = expand(reshape(row, {1, 6, 1}), {copies, 6, length}).contiguous();
      EXPECT_TRUE(close(sum(rows, 1), full({copies, length}, 0.5 * big, dtype), 8 * epsilon(dtype)));
      EXPECT_TRUE(close(sum(transpose(rows, 1, 2), 2), full({copies, length}, 0.5 * big, dtype), 8 * epsilon(dtype)));
      EXPECT_TRUE(close(sum(transpose(rows, 1, 2).contiguous(), -1), full({copies, length}, 0.5 * big, dtype), 8 * epsilon(dtype)));
      EXPECT_TRUE(close(mean(rows, {1, 2}), full({copies}, big / 12, dtype), 8 * epsilon(dtype)));
      EXPECT_TRUE(close(mean(slice(transpose(rows, 0, 2), 0, 0, length, 2), {0, 1}), full({copies}, big / 12, dtype), 8 * epsilon(dtype)));
    }
  EXPECT_TRUE(same(sum(expand(parts({1, -1}), {7, 2})), zeros({}, dtype)));
  EXPECT_TRUE(same(sum(parts({1, 1, -0.5})), full({}, inf, dtype)));
  EXPECT_TRUE(same(sum(parts({-1, -1})), full({}, -inf, dtype)));
}

TEST_P(Overflow, mean) {
  EXPECT_TRUE(near(mean(parts({1, 1, 0.5, 1})), {0.875 * big}));
  EXPECT_TRUE(near(mean(expand(parts({1}), {9, 4}), 0), {big, big, big, big}));
  const Tensor x = leaf(parts({1, 1}));
  EXPECT_TRUE(near(gradient(mean(x), x, full({}, big, dtype)), {big / 2, big / 2}));
}

TEST_P(Overflow, squares_under_a_mean) {
  const double root = std::sqrt(big);
  std::vector<double> values(100, 0.0);
  values[3] = 4 * root, values[4] = -4 * root;  // squares of 16 big each
  const Tensor x = leaf(from_vector(values, {100}).to(dtype)), target = zeros({100}, dtype);
  EXPECT_TRUE(near(mse_loss(x, target), {0.32 * big}));
  EXPECT_TRUE(near(var(x, {}, 0), {0.32 * big}));
  std::vector<double> expected(100, 0.0);
  expected[3] = 0.08 * root, expected[4] = -0.08 * root;
  EXPECT_TRUE(near(gradient(mse_loss(x, target), x), expected));
  EXPECT_TRUE(near(gradient(var(x, {}, 0), x), expected));
  // Beside a row that fits the other is as it is alone.
  const Tensor two = stack({x.detach(), full({100}, 2, dtype) * arange(0, 100, 1, dtype)});
  EXPECT_TRUE(same(select(var(two, 1), 0, 1), var(select(two, 0, 1))));
}

TEST_P(Overflow, gradients_beside_values_that_do_not_fit) {
  const Tensor x = leaf(parts({1, 1, 1, 1})), small = full({}, 1 / big * 64, dtype);
  EXPECT_TRUE(same(norm(x), full({}, inf, dtype)));
  EXPECT_TRUE(near(gradient(norm(x), x), {0.5, 0.5, 0.5, 0.5}));
  const Tensor a = leaf(parts({1, 0})), b = leaf(parts({-1, 0}));
  EXPECT_TRUE(same(mse_loss(a, b), full({}, inf, dtype)));
  EXPECT_TRUE(near(gradient(mse_loss(a, b), a, small), {128, 0}));
  EXPECT_TRUE(near(gradient(mse_loss(a, b, Reduction::none), b, expand(small, {2})), {-256, 0}));
  EXPECT_TRUE(near(gradient(var(a), a, small), {64, -64}));
}

TEST_P(Overflow, logsumexp_keeps_the_sum_beside_a_large_maximum) {
  const Tensor x = leaf(parts({0.5, 0.5, -1, 0.5, 0.5}));
  EXPECT_TRUE(near(logsumexp(x), {big / 2}));
  EXPECT_TRUE(near(gradient(logsumexp(x), x), {0.25, 0.25, 0, 0.25, 0.25}));
}

TEST_P(Overflow, cross_entropy) {
  const Tensor logits = leaf(stack({parts({1, -1, 1}), parts({0, 0, 0}), parts({0, 0, 0}), parts({0, 0, 0})}));
  const Tensor targets = tensor({1, 0, 0, 0}, i64);
  EXPECT_TRUE(near(cross_entropy(logits, targets), {big / 2}));
  EXPECT_TRUE(near(cross_entropy(logits, targets, {.label_smoothing = 0.75}), {big / 4}));  // (0.25 + 0.75 / 3) 2 / 4
  EXPECT_TRUE(near(select(cross_entropy(logits, targets, {.reduction = Reduction::none, .label_smoothing = 0.99}), 0, 0), {0.68 * big}));
  EXPECT_TRUE(same(cross_entropy(logits, targets, {.reduction = Reduction::sum}), full({}, inf, dtype)));
  EXPECT_TRUE(near(select(gradient(cross_entropy(logits, targets), logits), 0, 0), {0.125, -0.25, 0.125}));
}

TEST_P(Overflow, gradients_through_softmax) {
  const Tensor x = leaf(from_vector(std::vector<double>{std::log(63.0), 0}, {2}).to(dtype)), up = parts({0.9, -0.9});
  const double p = 1.0 / 64, q = 63.0 / 64;
  EXPECT_TRUE(close(gradient(softmax(x, 0), x, up), tensor({1.8 * p * q * big, -1.8 * p * q * big}, f64), 32 * epsilon(dtype)));
  const Tensor even = leaf(zeros({4}, dtype));
  EXPECT_TRUE(near(gradient(log_softmax(even, 0), even, parts({1, 1, 1, 0.5})), {0.125 * big, 0.125 * big, 0.125 * big, -0.375 * big}));
}

TEST_P(Overflow, layer_norm) {
  const Tensor weight = leaf(ones({4}, dtype)), bias = leaf(zeros({4}, dtype));
  const double s = std::sqrt(0.4);
  for (double size : {1.0, 1e-9, std::pow(big, -0.5), 1 / big}) {
    const Tensor x = leaf(parts({0.8, -0.8, 0.4, -0.4}) * size);
    const Tensor y = layer_norm(x, 4, weight, bias, 0);
    EXPECT_TRUE(near(y, {2 * s, -2 * s, s, -s})) << size;
    // dx = rstd (dy - mean dy - y mean(dy y)) for dy = (1, 0, 0, 0)
    const std::vector<Tensor> d = grad({y}, {x, weight, bias}, {tensor({1., 0., 0., 0.}, dtype)});
    const double rstd = 1 / (size * big * std::sqrt(0.4));
    EXPECT_TRUE(within(d[0], tensor({0.35 * rstd, 0.15 * rstd, -0.45 * rstd, -0.05 * rstd}, dtype),
                       32 * epsilon(dtype) * rstd + (dtype == f32 ? 0x1p-148 : 0x1p-1073)))
        << size;
    EXPECT_TRUE(near(d[1], {2 * s, 0, 0, 0})) << size;
    EXPECT_TRUE(near(d[2], {1, 0, 0, 0})) << size;
  }
}

TEST_P(Overflow, layer_norm_parameters_and_large_gradients) {
  const double s = std::sqrt(0.4);
  const Tensor row = tensor({2., -2., 1., -1.}, dtype), x = leaf(stack({row, row, row})), weight = leaf(full({4}, 1 / big * 16, dtype)),
               bias = leaf(zeros({4}, dtype));
  const Tensor y = layer_norm(x, 4, weight, bias, 0);
  const std::vector<Tensor> d = grad({y}, {x, weight, bias}, {stack({parts({0.8, 0, 0, 0}), parts({0.8, 0, 0, 0}), parts({-0.9, 0, 0, 0})})});
  EXPECT_TRUE(near(d[1], {1.4 * s * big, 0, 0, 0}));
  EXPECT_TRUE(near(d[2], {0.7 * big, 0, 0, 0}));
  const double g = 16 * 0.8 * s;
  EXPECT_TRUE(near(select(d[0], 0, 0), {0.35 * g, 0.15 * g, -0.45 * g, -0.05 * g}));
  // Products of gradient and weight that vanish, but not beside a small spread.
  const double tiny = std::pow(big, -0.6);
  const Tensor narrow = leaf(row * tiny);
  const Tensor dx = gradient(layer_norm(narrow, 4, full({4}, tiny, dtype), {}, 0), narrow, tensor({tiny, 0., 0., 0.}, dtype));
  EXPECT_TRUE(near(dx, {0.35 * s * tiny, 0.15 * s * tiny, -0.45 * s * tiny, -0.05 * s * tiny}));
}

TEST_P(Overflow, attention_scores_are_scaled_before_they_are_summed) {
  const double size = std::sqrt(big);
  const Tensor q = full({20, 64}, size, dtype), k = tril(full({20, 64}, size, dtype)), v = randn({20, 3}, dtype);
  for (Kernel kernel : {Kernel::composed, Kernel::tiled})
    for (Index queries : {1, 2, 20}) {  // scores of 1/64 to 20/64 of the largest number
      const Tensor out =
          scaled_dot_product_attention(slice(q, 0, 0, queries), k, v, {.scale = 1.0 / 64, .need_weights = false, .kernel = kernel}).output;
      EXPECT_TRUE(same(out, expand(slice(v, 0, 19, 20), {queries, 3}))) << queries;
    }
}

TEST_P(Overflow, attention_scores_that_do_not_fit_are_not_zeros) {
  const double size = std::pow(big, 0.6);
  const auto isnan_everywhere = [](const Tensor& t) { return all(isnan(t)).item<bool>(); };
  for (Kernel kernel : {Kernel::composed, Kernel::tiled})
    for (bool need_weights : {false, true})
      for (Index queries : {1, 2, 20})
        for (double sign : {1.0, -1.0}) {
          const Tensor q = leaf(full({queries, 4}, size, dtype)), k = full({30, 4}, sign * size, dtype), v = ones({30, 3}, dtype);
          const auto attend = [&](const Mask& mask) {
            return scaled_dot_product_attention(q, k, v, {.mask = mask, .need_weights = need_weights, .kernel = kernel});
          };
          const auto plain = attend({});
          EXPECT_TRUE(isnan_everywhere(plain.output)) << queries << sign;
          EXPECT_TRUE(!need_weights || isnan_everywhere(plain.weights));
          EXPECT_TRUE(isnan_everywhere(gradient(plain.output, q)));
          {
            const NoGrad off;
            EXPECT_TRUE(isnan_everywhere(attend({}).output)) << queries << sign;
            EXPECT_TRUE(isnan_everywhere(attend(Mask::causal(3) & Mask::bias(zeros({queries, 30}, dtype))).output));
            // Those that may attend to nothing still give zeros.
            EXPECT_TRUE(same(attend(Mask::keep(zeros({30}, boolean))).output, zeros({queries, 3}, dtype)));
            EXPECT_TRUE(same(attend(Mask::bias(full({30}, -inf, dtype))).output, zeros({queries, 3}, dtype)));
            EXPECT_TRUE(same(attend(Mask::causal(-30)).output, zeros({queries, 3}, dtype)));
          }
        }
}

INSTANTIATE_TEST_SUITE_P(DTypes, Overflow, testing::Values(f32, f64), [](const auto& test) { return test.param == f32 ? "f32" : "f64"; });

}  // namespace
}  // namespace heed::test
