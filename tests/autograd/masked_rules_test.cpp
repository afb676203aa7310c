#include <heed/autograd/backward.h>
#include <heed/autograd/gradcheck.h>
#include <heed/autograd/ops.h>

#include "close.h"

// Rules in which a factor is 0, or a part is left out: the derivative of the part must not be left out with it, and what is left out must not come
// back as 0 times infinity.

namespace heed::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

Tensor derivative(const Tensor& y, const Tensor& x) { return grad({sum(y)}, {x}, {}, {.create_graph = true})[0]; }
Tensor at(double x) { return leaf(tensor(x, f64)); }

/// The derivative of that order of f at x.
template <class F>
Tensor derivative(int order, F f, const Tensor& x) {
  Tensor y = f(x);
  for (int i = 0; i < order; ++i) y = derivative(y, x);
  return y;
}

TEST(MaskedRules, mixed_derivatives_of_a_power) {
  // d/db d/da a^b = a^(b-1) (1 + b log a), in either order; nothing special happens at b = 0, where the first of the two is 0.
  const std::vector<double> bases{3, 0.5, 2, 3, 1.5}, exponents{0, 0, 0, 1, -2};
  const Tensor a = leaf(from_vector(bases, {5})), b = leaf(from_vector(exponents, {5}));
  std::vector<double> expected, third;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    const double x = bases[i], n = exponents[i], l = std::log(x);
    expected.push_back(std::pow(x, n - 1) * (1 + n * l));
    third.push_back(std::pow(x, n - 2) * (2 * n - 1 + n * (n - 1) * l));
  }
  EXPECT_NEAR(expected[0], 1 / 3., 1e-15);
  EXPECT_NEAR(third[3], 1 / 3., 1e-15);
  EXPECT_TRUE(holds(derivative(derivative(pow(a, b), a), b), expected, 1e-14));
  EXPECT_TRUE(holds(derivative(derivative(pow(a, b), b), a), expected, 1e-14));
  EXPECT_TRUE(holds(derivative(derivative(derivative(pow(a, b), a), a), b), third, 1e-14));
  EXPECT_TRUE(holds(derivative(derivative(derivative(pow(a, b), a), b), a), third, 1e-14));
  EXPECT_TRUE(holds(derivative(derivative(derivative(pow(a, b), b), a), a), third, 1e-14));
  // One tensor as both.
  EXPECT_TRUE(holds(derivative(
                        2, [](const Tensor& x) { return pow(x, x); }, at(2)),
                    {4 * (std::pow(1 + std::log(2), 2) + 0.5)}));
}

TEST(MaskedRules, second_derivatives_of_a_power_are_checked) {
  const auto power = [](const std::vector<Tensor>& x) -> std::vector<Tensor> { return {pow(x[0], x[1])}; };
  const GradcheckReport report = gradgradcheck(power, {tensor({3, .5, 2}, f64), tensor({0, 1, -2}, f64)});
  EXPECT_TRUE(report.ok) << report.message;
}

TEST(MaskedRules, whole_powers_of_zero_have_all_derivatives) {
  for (int exponent = 0; exponent <= 4; ++exponent) {
    double factorial = 1;
    for (int i = 2; i <= exponent; ++i) factorial *= i;
    for (int order = 0; order <= 6; ++order) {
      const double expected = order == exponent ? factorial : 0;
      const auto by_number = [=](const Tensor& x) { return pow(x, exponent); };
      const auto by_tensor = [=](const Tensor& x) { return pow(x, full({1}, exponent, f64)); };
      const auto by_leaf = [=](const Tensor& x) { return pow(x, leaf(full({1}, exponent, f64))); };
      EXPECT_TRUE(holds(derivative(order, by_number, at(0)), {expected}, 0)) << exponent << ", order " << order;
      EXPECT_TRUE(holds(derivative(order, by_tensor, at(0)), {expected}, 0)) << exponent << ", order " << order;
      EXPECT_TRUE(holds(derivative(order, by_leaf, at(0)), {expected}, 0)) << exponent << ", order " << order;
    }
  }
}

TEST(MaskedRules, a_product_of_first_powers_at_zero) {
  for (const bool leaves : {false, true}) {
    const Tensor one = leaves ? leaf(ones({}, f64)) : ones({}, f64), x = at(0), y = at(0), z = at(0);
    EXPECT_TRUE(holds(derivative(derivative(derivative(pow(x, one) * pow(y, one) * pow(z, one), x), y), z), {1}, 0));
  }
  const Tensor x = at(0), y = at(0), z = at(0);
  EXPECT_TRUE(holds(derivative(derivative(derivative(pow(x, 1) * pow(y, 1) * pow(z, 1), x), y), z), {1}, 0));
}

TEST(MaskedRules, factors_that_are_zero_keep_their_derivatives) {
  const Tensor a = at(0), b = at(2);
  EXPECT_TRUE(holds(derivative(derivative(a / b, a), b), {-.25})) << "the numerator is 0";
  EXPECT_TRUE(holds(derivative(derivative(a / b, b), a), {-.25}));
  EXPECT_TRUE(holds(derivative(derivative(derivative(a / b, b), b), a), {.25}));
  EXPECT_TRUE(holds(derivative(
                        2, [](const Tensor& x) { return x * abs(x); }, leaf(tensor({-2, 0, 2}, f64))),
                    {-2, 0, 2}));
  EXPECT_TRUE(holds(derivative(
                        2, [](const Tensor& x) { return x * maximum(x, 0); }, leaf(tensor({-2, 0, 2}, f64))),
                    {0, 1, 2}))
      << "a tie: half";
  EXPECT_TRUE(holds(derivative(
                        2, [](const Tensor& x) { return x * clamp(x, 0, 1); }, leaf(tensor({-2, 0, .5, 1, 2}, f64))),
                    {0, 2, 2, 2, 0}));
  EXPECT_TRUE(holds(derivative(
                        2, [](const Tensor& x) { return x * where(eq(x, 0), x, 3 * x); }, leaf(tensor({-2, 0, 2}, f64))),
                    {6, 2, 6}));
  EXPECT_TRUE(holds(derivative(
                        2, [](const Tensor& x) { return var(x); }, full({3}, 5, f64).requires_grad_()),
                    {0, 0, 0}));
  const Tensor equal = full({3}, 5, f64).requires_grad_();
  EXPECT_TRUE(holds(derivative(select(derivative(var(equal), equal), 0, 0), equal), {2 / 3., -1 / 3., -1 / 3.}))
      << "the gradient is 0, its own is not";
}

TEST(MaskedRules, what_is_left_out_is_zero_beside_infinities_too) {
  const Tensor x = leaf(tensor({-1, 0, 1, 0}, f64)), infinite = tensor({inf, inf, inf, 3}, f64);
  const auto gradient = [&](const Tensor& y) { return grad({y}, {x}, {infinite})[0]; };
  EXPECT_TRUE(holds(gradient(relu(x)), {0, 0, inf, 0}));
  EXPECT_TRUE(holds(gradient(abs(x)), {-inf, 0, inf, 0}));
  EXPECT_TRUE(holds(gradient(maximum(x, 0)), {0, inf, inf, 1.5}));
  EXPECT_TRUE(holds(gradient(minimum(x, 0)), {inf, inf, 0, 1.5}));
  EXPECT_TRUE(holds(gradient(maximum(tensor(0.0, f64), x)), {0, inf, inf, 1.5}));
  EXPECT_TRUE(holds(gradient(minimum(tensor(0.0, f64), x)), {inf, inf, 0, 1.5}));
  EXPECT_TRUE(holds(gradient(clamp(x, 0)), {0, inf, inf, 3}));
  EXPECT_TRUE(holds(gradient(where(gt(x, 0), x, 2)), {0, 0, inf, 0}));
  EXPECT_TRUE(holds(gradient(masked_fill(x, gt(x, 0), 2)), {inf, inf, 0, 3}));
  // As they meet in a program: the root of what may be 0.
  EXPECT_TRUE(holds(grad({sum(sqrt(relu(x)))}, {x})[0], {0, 0, .5, 0}));
  EXPECT_TRUE(holds(grad({sum(sqrt(abs(x)))}, {x})[0], {-.5, 0, .5, 0}));
}

TEST(MaskedRules, activations_at_infinity) {
  const Tensor x = leaf(tensor({-inf, inf}, f64));
  const auto expect = [&](const char* name, const Tensor& y, std::vector<double> value, std::vector<double> slope) {
    EXPECT_TRUE(holds(y, value)) << name;
    const Tensor first = derivative(y, x);
    EXPECT_TRUE(holds(first, slope, 0)) << name;
    EXPECT_TRUE(holds(grad({sum(y)}, {x}, {}, {.retain_graph = true})[0], slope, 0)) << name;
    EXPECT_TRUE(holds(derivative(first, x), {0, 0}, 0)) << name;
  };
  expect("tanh", tanh(x), {-1, 1}, {0, 0});
  expect("sigmoid", sigmoid(x), {0, 1}, {0, 0});
  expect("silu", silu(x), {0, inf}, {0, 1});
  expect("gelu", gelu(x), {0, inf}, {0, 1});
  expect("gelu by tanh", gelu(x, Gelu::tanh), {0, inf}, {0, 1});
}

}  // namespace
}  // namespace heed::test
