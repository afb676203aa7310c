#include <gmock/gmock.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/op.h>
#include <heed/autograd/ops.h>

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

}  // namespace
}  // namespace heed::test
