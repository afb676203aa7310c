#include <gmock/gmock.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/op.h>
#include <heed/autograd/ops.h>
#include <heed/nn/positions.h>
#include <heed/tensor/random.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "close.h"

// grad(): at inputs, at intermediates, and of gradients.

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Tensor derivative(const Tensor& y, const Tensor& x) { return grad({y}, {x}, {}, {.create_graph = true})[0]; }

TEST(HigherOrder, all_derivatives_of_a_power) {
  const Tensor x = leaf(tensor(1.5, f64));
  const Tensor y = x * x * x * x;
  const Tensor d1 = derivative(y, x), d2 = derivative(d1, x), d3 = derivative(d2, x), d4 = derivative(d3, x);
  EXPECT_TRUE(holds(d1, {4 * 1.5 * 1.5 * 1.5}));
  EXPECT_TRUE(holds(d2, {12 * 1.5 * 1.5}));
  EXPECT_TRUE(holds(d3, {24 * 1.5}));
  EXPECT_TRUE(holds(d4, {24}));
  // The same by pow, and by square.
  const Tensor p3 = derivative(derivative(derivative(pow(x, 4), x), x), x);
  EXPECT_TRUE(holds(p3, {36}));
  const Tensor q3 = derivative(derivative(derivative(square(square(x)), x), x), x);
  EXPECT_TRUE(holds(q3, {36}));
}

TEST(HigherOrder, ops_that_save_their_output) {
  const Tensor x = leaf(tensor(0.3, f64));
  EXPECT_TRUE(holds(derivative(derivative(derivative(exp(x), x), x), x), {std::exp(0.3)}));
  const double t = std::tanh(0.3), s = 1 - t * t;
  EXPECT_TRUE(holds(derivative(derivative(tanh(x), x), x), {-2 * t * s}));
  EXPECT_TRUE(holds(derivative(derivative(derivative(tanh(x), x), x), x), {-2 * s * s + 4 * t * t * s}));
  EXPECT_TRUE(holds(derivative(derivative(sqrt(x), x), x), {-0.25 * std::pow(0.3, -1.5)}));
}

TEST(HigherOrder, mixed_partial_derivatives) {
  const Tensor x = leaf(tensor(2, f64)), y = leaf(tensor(3, f64));
  const Tensor z = x * x * y;
  const std::vector<Tensor> d = grad({z}, {x, y}, {}, {.create_graph = true});
  EXPECT_TRUE(holds(derivative(d[0], y), {4}));
  EXPECT_TRUE(holds(derivative(d[1], x), {4}));
  EXPECT_THROW((void)derivative(d[1], y), GradError) << "x^2 does not depend on y";
}

TEST(HigherOrder, backward_of_a_gradient_reaches_leaves) {
  Tensor x = leaf(tensor(2, f64));
  const Tensor y = x * x * x;
  y.backward({}, {.create_graph = true});
  EXPECT_TRUE(holds(x.grad(), {12}));
  EXPECT_TRUE(x.grad().requires_grad());
  const Tensor first = x.grad();
  x.zero_grad();
  first.backward();
  EXPECT_TRUE(holds(x.grad(), {12})) << "6x";
  x.zero_grad();
}

TEST(HigherOrder, create_graph_implies_retain_graph) {
  const Tensor x = leaf(tensor(3, f64));
  const Tensor y = x * x;
  (void)grad({y}, {x}, {}, {.create_graph = true});
  EXPECT_TRUE(holds(grad({y}, {x})[0], {6}));
  EXPECT_THROW((void)grad({y}, {x}), GradError);
}

TEST(HigherOrder, gradient_penalty) {
  // d/dw (d(w x^2)/dx)^2 = d/dw (2 w x)^2 = 8 w x^2
  Tensor w = leaf(tensor(3, f64));
  const Tensor x = leaf(tensor(2, f64));
  const Tensor g = derivative(w * x * x, x);
  (g * g).backward();
  EXPECT_TRUE(holds(w.grad(), {96}));
}

TEST(HigherOrder, grad_touches_no_leaf) {
  Tensor x = leaf(tensor(3, f64)), y = leaf(tensor(4, f64));
  const Tensor z = x * y;
  EXPECT_TRUE(holds(grad({z}, {x})[0], {4}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(y.grad().defined());
}

TEST(HigherOrder, grad_at_intermediates) {
  const Tensor x = leaf(tensor({1, 2}, f64));
  const Tensor a = x * 3, b = a * a, c = sum(b);
  const std::vector<Tensor> d = grad({c}, {a, b, x, c});
  EXPECT_TRUE(holds(d[0], {6, 12}));
  EXPECT_TRUE(holds(d[1], {1, 1}));
  EXPECT_TRUE(holds(d[2], {18, 36}));
  EXPECT_TRUE(holds(d[3], {1}));
}

TEST(HigherOrder, grad_stops_at_its_inputs) {
  const Tensor x = leaf(tensor(2, f64));
  bool ran = false;
  const Tensor a = record("probe", x.detach() * 3, x, [&ran](const BackwardContext&, const Tensor& dy) -> Grads {
    ran = true;
    return {dy * 3};
  });
  EXPECT_TRUE(holds(grad({a * a}, {a})[0], {12}));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(holds(grad({a * a}, {x})[0], {36})) << "and has not freed what lies behind them";
}

TEST(HigherOrder, several_outputs) {
  const Tensor x = leaf(tensor({1, 2}, f64));
  const Tensor a = x * x, b = sum(x * 5);
  const Tensor along = tensor({10, 100}, f64);
  EXPECT_TRUE(holds(grad({a, b}, {x}, {along, Tensor()})[0], {25, 405}));
  // The same output twice counts twice.
  const Tensor c = sum(x * x);
  EXPECT_TRUE(holds(grad({c, c}, {x}, {}, {.retain_graph = true})[0], {4, 8}));
  // The same input twice is told twice.
  const std::vector<Tensor> d = grad({c}, {x, x});
  EXPECT_TRUE(holds(d[0], {2, 4}));
  EXPECT_TRUE(holds(d[1], {2, 4}));
}

TEST(HigherOrder, unconnected_inputs) {
  Tensor x = leaf(tensor(2, f64)), unused = leaf(tensor(3, f64));
  unused.named("W_unused");
  const Tensor y = x * x;
  EXPECT_THAT(thrown<GradError>([&] {
                (void)grad({y}, {x, unused}, {}, {.retain_graph = true});
              }),
              AllOf(HasSubstr("W_unused"), HasSubstr("allow_unused"), HasSubstr("input 1")));
  const std::vector<Tensor> d = grad({y}, {x, unused}, {}, {.allow_unused = true});
  EXPECT_TRUE(holds(d[0], {4}));
  EXPECT_FALSE(d[1].defined());
}

TEST(HigherOrder, grad_called_wrongly) {
  const Tensor x = leaf(tensor({1, 2}, f64)), plain = tensor({1, 2}, f64);
  const Tensor y = x * x;
  EXPECT_THAT(thrown<GradError>([&] { (void)grad({y}, {x}); }), HasSubstr("(2,)"));
  EXPECT_THAT(thrown<GradError>([&] { (void)grad({y}, {plain}, {ones({2}, f64)}); }), HasSubstr("input 0"));
  EXPECT_THROW((void)grad({plain}, {x}, {ones({2}, f64)}), GradError);
  EXPECT_THROW((void)grad({y}, {x}, {ones({3}, f64)}), GradError);
  EXPECT_THROW((void)grad({y}, {x}, {ones({2}, f32)}), GradError);
  EXPECT_THAT(thrown<GradError>([&] { (void)grad({y}, {x}, {ones({2}, f64), ones({2}, f64)}); }), HasSubstr("2 gradients for 1 output"));
  EXPECT_THROW((void)grad({y}, {Tensor()}, {ones({2}, f64)}), Error);
  EXPECT_THROW((void)grad({Tensor()}, {x}), Error);
  EXPECT_TRUE(holds(grad({y}, {x}, {ones({2}, f64)})[0], {2, 4})) << "none of these has freed anything";
}

TEST(HigherOrder, under_no_grad_too) {
  const Tensor x = leaf(tensor(3, f64));
  const Tensor y = x * x * x;
  const NoGrad off;
  EXPECT_TRUE(holds(grad({y}, {x}, {}, {.retain_graph = true})[0], {27}));
  const Tensor d = grad({y}, {x}, {}, {.create_graph = true})[0];
  EXPECT_TRUE(d.requires_grad()) << "asked for by name";
  EXPECT_TRUE(holds(grad({d}, {x})[0], {18}));
}

// Third and fourth derivatives of fused ops, along a line: d^n/dt^n of sum(f(x + t u) w) at 0, against formulas of elementary ops.

using Function = std::function<Tensor(const Tensor&)>;

std::vector<double> along_a_line(const Function& f, const Tensor& x, const Tensor& u, const Tensor& w, int orders) {
  const Tensor t = leaf(tensor(0, f64));
  Tensor y = sum(f(x + t * u) * w);
  std::vector<double> out{y.item<double>()};
  for (int n = 1; n <= orders; ++n) out.push_back((y = derivative(y, t)).item<double>());
  return out;
}

void expect_same_derivatives(const Function& fused, const Function& plain, const Dims& shape) {
  manual_seed(8);
  const Tensor x = randn(shape, f64), u = randn(shape, f64), w = randn(plain(x).shape(), f64);
  const std::vector<double> got = along_a_line(fused, x, u, w, 4), want = along_a_line(plain, x, u, w, 4);
  for (std::size_t n = 0; n < want.size(); ++n) EXPECT_NEAR(got[n], want[n], 1e-9 * (1 + std::abs(want[n]))) << "order " << n;
}

Tensor average(const Tensor& x) { return sum(x, -1, true) / static_cast<double>(x.size(-1)); }
Tensor plain_softmax(const Tensor& x) { return exp(x) / sum(exp(x), -1, true); }
/// Without matmul: (..., m, 1, k) times (..., 1, n, k), summed.
Tensor plain_product(const Tensor& a, const Tensor& b) { return sum(unsqueeze(a, -2) * unsqueeze(transpose(b, -2, -1), -3), -1); }

TEST(HigherOrder, fused_ops_to_the_fourth_order) {
  const Dims shape{2, 3};
  {
    SCOPED_TRACE("layer_norm");
    const Tensor weight = tensor({.5, -1.5, 2}, f64), bias = tensor({1, 2, 3}, f64);
    expect_same_derivatives([&](const Tensor& x) { return layer_norm(x, 3, weight, bias, .1); },
                            [&](const Tensor& x) {
                              const Tensor centered = x - average(x);
                              return centered / sqrt(average(centered * centered) + .1) * weight + bias;
                            },
                            shape);
  }
  {
    SCOPED_TRACE("softmax");
    expect_same_derivatives([](const Tensor& x) { return softmax(x, -1); }, plain_softmax, shape);
    expect_same_derivatives([](const Tensor& x) { return log_softmax(x, -1); }, [](const Tensor& x) { return log(plain_softmax(x)); }, shape);
  }
  {
    SCOPED_TRACE("logsumexp and var");
    expect_same_derivatives([](const Tensor& x) { return logsumexp(x, -1); }, [](const Tensor& x) { return log(sum(exp(x), -1)); }, shape);
    expect_same_derivatives([](const Tensor& x) { return var(x * x, -1); },
                            [](const Tensor& x) {
                              const Tensor centered = x * x - average(x * x);
                              return sum(centered * centered, -1) / 2;
                            },
                            shape);
  }
  {
    SCOPED_TRACE("rotary");
    const auto turned = [](const Tensor& x) {
      const Tensor a = slice(x, -1, 0, 2), b = slice(x, -1, 2, 4);
      std::vector<double> c, s;
      for (int t = 3; t < 5; ++t)
        for (const double frequency : {1., .01}) c.push_back(std::cos(t * frequency)), s.push_back(std::sin(t * frequency));
      const Tensor cosine = from_vector(c, {2, 2}), sine = from_vector(s, {2, 2});
      return cat({a * cosine - b * sine, a * sine + b * cosine}, -1);
    };
    const auto rotary = [](const Tensor& x) { return nn::rotary(x, {.offset = 3, .pairs = nn::RotaryPairs::halves}); };
    expect_same_derivatives([&](const Tensor& x) { return exp(rotary(x * x)); }, [&](const Tensor& x) { return exp(turned(x * x)); }, {2, 4});
  }
}

TEST(HigherOrder, gelu_to_the_fourth_order) {
  expect_same_derivatives([](const Tensor& x) { return gelu(x, Gelu::tanh); },
                          [](const Tensor& x) {
                            const Tensor e = exp(2 * std::sqrt(2 / std::numbers::pi) * (x + .044715 * x * x * x));
                            return .5 * x * (1 + (e - 1) / (e + 1));
                          },
                          {2, 3});
  // Phi + x phi, and what follows by phi' = -x phi
  manual_seed(8);
  const Tensor x = randn({2, 3}, f64), u = randn({2, 3}, f64), w = randn({2, 3}, f64);
  const std::vector<double> got = along_a_line([](const Tensor& t) { return gelu(t); }, x, u, w, 4);
  std::vector<double> want(5, 0.0);
  const std::vector<double> xs = x.to_vector<double>(), us = u.to_vector<double>(), ws = w.to_vector<double>();
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double v = xs[i], phi = std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi), Phi = std::erfc(-v / std::numbers::sqrt2) / 2;
    const double derivatives[] = {v * Phi, Phi + v * phi, (2 - v * v) * phi, (v * v * v - 4 * v) * phi, (-v * v * v * v + 7 * v * v - 4) * phi};
    for (std::size_t n = 0; n < 5; ++n) want[n] += ws[i] * std::pow(us[i], static_cast<double>(n)) * derivatives[n];
  }
  for (std::size_t n = 0; n < 5; ++n) EXPECT_NEAR(got[n], want[n], 1e-10) << "order " << n;
}

TEST(HigherOrder, attention_to_the_fourth_order) {
  for (const Kernel kernel : {Kernel::composed, Kernel::tiled}) {
    SCOPED_TRACE(static_cast<int>(kernel));
    // One input cut into queries, keys and values; its last entries are a bias.
    const auto parts = [](const Tensor& x) {
      const auto part = [&](Index begin, const Dims& shape) { return reshape(slice(x, 0, begin, begin + detail::numel(shape)), shape); };
      return std::vector<Tensor>{part(0, {2, 2}), part(4, {3, 2}), part(10, {3, 2}), part(16, {2, 3})};
    };
    expect_same_derivatives(
        [&](const Tensor& x) {
          const std::vector<Tensor> p = parts(x);
          return scaled_dot_product_attention(p[0], p[1], p[2],
                                              {.mask = Mask::causal(1) & Mask::bias(p[3]), .scale = .8, .need_weights = false, .kernel = kernel})
              .output;
        },
        [&](const Tensor& x) {
          const std::vector<Tensor> p = parts(x);
          const Tensor scores = .8 * plain_product(p[0], transpose(p[1], 0, 1)) + p[3];
          const Tensor numerators = exp(scores) * tensor({{1, 1, 0}, {1, 1, 1}}, f64);
          return plain_product(numerators / sum(numerators, -1, true), p[2]);
        },
        {22});
  }
}

}  // namespace
}  // namespace heed::test
