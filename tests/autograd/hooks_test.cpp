#include <gmock/gmock.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/op.h>
#include <heed/autograd/ops.h>

#include "close.h"

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Hooks, see_the_complete_gradient_once) {
  Tensor x = leaf(tensor(3, f64));
  const Tensor y = x * x;
  std::vector<double> seen;
  y.register_hook([&](const Tensor& g) {
    seen.push_back(g.item<double>());
    return Tensor();
  });
  x.register_hook([&](const Tensor& g) {
    seen.push_back(g.item<double>());
    return Tensor();
  });
  (y * y + y).backward();
  EXPECT_EQ(seen, (std::vector<double>{19, 114}));
  EXPECT_TRUE(holds(x.grad(), {114})) << "an undefined result keeps the gradient";
}

TEST(Hooks, replace_the_gradient_in_order) {
  Tensor x = leaf(tensor(3, f64));
  x.register_hook([](const Tensor& g) { return g * 2; });
  x.register_hook([](const Tensor& g) { return g + 1; });
  (x * x).backward();
  EXPECT_TRUE(holds(x.grad(), {13}));
  (x * x).backward();
  EXPECT_TRUE(holds(x.grad(), {26}));

  const Tensor y = x * 5;
  y.register_hook([](const Tensor& g) { return g * 10; });
  x.zero_grad();
  y.backward();
  EXPECT_TRUE(holds(x.grad(), {101}));
  EXPECT_TRUE(holds(grad({x * 1}, {x})[0], {3})) << "also in grad()";
}

TEST(Hooks, of_one_output_of_several) {
  Tensor x = leaf(tensor({1, 2, 3, 4}, f64));
  const std::vector<Tensor> parts = split(x, 2);
  parts[1].register_hook([](const Tensor& g) { return g * 100; });
  (sum(parts[0]) + sum(parts[1])).backward();
  EXPECT_TRUE(holds(x.grad(), {1, 1, 100, 100}));
}

TEST(Hooks, what_they_return_is_checked_and_copied) {
  Tensor x = leaf(tensor({1, 2}, f64));
  const Tensor kept = tensor({7, 8}, f64);
  Tensor result = kept;
  x.register_hook([&](const Tensor&) { return result; });
  sum(x).backward();
  EXPECT_TRUE(holds(x.grad(), {7, 8}));
  x.grad().fill_(0);
  EXPECT_TRUE(holds(kept, {7, 8})) << ".grad owns its storage";

  x.zero_grad();
  result = ones({3}, f64);
  EXPECT_THAT(thrown<GradError>([&] { sum(x).backward(); }), AllOf(HasSubstr("hook"), HasSubstr("(3,)"), HasSubstr("(2,)")));
  result = ones({2}, f32);
  EXPECT_THAT(thrown<GradError>([&] { sum(x).backward(); }), AllOf(HasSubstr("hook"), HasSubstr("f32")));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_THROW(tensor({1, 2}, f64).requires_grad_().register_hook(nullptr), GradError);
  EXPECT_THROW(tensor({1, 2}, f64).register_hook([](const Tensor& g) { return g; }), GradError);
}

TEST(Hooks, an_exception_passes_through_and_changes_nothing) {
  Tensor x = leaf(tensor(2, f64)), y = leaf(tensor(3, f64));
  const Tensor z = x * 1;
  z.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("of the hook"); });
  EXPECT_THROW((y * z).backward(), std::runtime_error);
  EXPECT_FALSE(x.grad().defined() || y.grad().defined());
  EXPECT_TRUE((x * 2).requires_grad()) << "recording is on again";
}

TEST(Hooks, may_register_hooks) {
  Tensor x = leaf(tensor(2, f64));
  int calls = 0;
  x.register_hook([&](const Tensor&) {
    for (int i = 0; i < 20; ++i)
      x.register_hook([&](const Tensor&) {
        ++calls;
        return Tensor();
      });
    return Tensor();
  });
  (x * 1).backward();
  EXPECT_EQ(calls, 0) << "from the next pass on";
  (x * 1).backward();
  EXPECT_EQ(calls, 20);
}

TEST(Hooks, backward_inside_a_hook) {
  Tensor x = leaf(tensor(2, f64)), w = leaf(tensor(5, f64));
  const Tensor inner = w * w * w, y = x * x;
  y.register_hook([&](const Tensor&) {
    inner.backward();
    return Tensor();
  });
  (y * 3).backward();
  EXPECT_TRUE(holds(x.grad(), {12}));
  EXPECT_TRUE(holds(w.grad(), {75}));
}

TEST(Hooks, backward_inside_a_backward_through_the_same_leaf) {
  // As activation checkpointing does it: the inner graph is made again and differentiated within the outer backward.
  Tensor x = leaf(tensor({1, 2}, f64)), w = leaf(tensor({3, 4}, f64));
  const auto body = [](const Tensor& a, const Tensor& b) { return exp(a * b * 0.1); };
  const auto checkpoint = [&](const Tensor& a, const Tensor& b) {
    Tensor y;
    {
      const NoGrad off;
      y = body(a, b);
    }
    return record("checkpoint", y, a, b, [&, a = saved(a), b = saved(b)](const BackwardContext&, const Tensor& dy) -> Grads {
      const detail::GradModeScope on(true);
      Tensor p = a.get().detach(), q = b.get().detach();
      p.requires_grad_(), q.requires_grad_();
      body(p, q).backward(dy);
      return {p.grad(), q.grad()};
    });
  };
  sum(square(checkpoint(x, w)) + x).backward();
  const Tensor dx = x.grad(), dw = w.grad();
  x.zero_grad(), w.zero_grad();
  sum(square(body(x, w)) + x).backward();
  EXPECT_TRUE(close(dx, x.grad(), 1e-15));
  EXPECT_TRUE(close(dw, w.grad(), 1e-15));
}

TEST(Hooks, of_a_recorded_pass_are_recorded) {
  const Tensor x = leaf(tensor(2, f64));
  const Tensor y = x * x;
  y.register_hook([&](const Tensor& g) { return g * x; });
  const Tensor d = grad({y * 1}, {x}, {}, {.create_graph = true})[0];
  EXPECT_TRUE(holds(d, {8})) << "x times 2x";
  EXPECT_TRUE(holds(grad({d}, {x})[0], {8})) << "4x";
}

}  // namespace
}  // namespace heed::test
