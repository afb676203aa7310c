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

Tensor number(double value) { return leaf(tensor(value, f64)); }

/// x^2 as a user's op, with whatever gradients `make` returns.
template <class F>
Tensor with_backward(const Tensor& x, F make) {
  const NoGrad off;
  Tensor y = x * x;
  const detail::GradModeScope on(true);
  return record("of_a_user", y, x, [make](const BackwardContext&, const Tensor& dy) -> Grads { return make(dy); });
}

TEST(Engine, shared_intermediate_gets_every_contribution_once) {
  Tensor x = number(3);
  const Tensor y = x * x, z = y * y + y;
  z.backward();
  EXPECT_TRUE(holds(z, {90}));
  EXPECT_TRUE(holds(x.grad(), {114}));

  Tensor u = number(4);
  const Tensor v = u * 2, w = v * 3 + v * 7;
  w.backward();
  EXPECT_TRUE(holds(w, {80}));
  EXPECT_TRUE(holds(u.grad(), {20}));
}

TEST(Engine, same_tensor_as_both_operands) {
  const auto expect = [](Tensor (*f)(const Tensor&), const Tensor& at, std::vector<double> value, std::vector<double> gradient) {
    Tensor x = leaf(at.clone());
    const Tensor y = f(x);
    y.backward(ones(y.shape(), f64));
    EXPECT_TRUE(holds(y, value, 0));
    EXPECT_TRUE(holds(x.grad(), gradient, 0));
    EXPECT_TRUE(same(x, at));
  };
  const Tensor x = tensor({1, 2, 4}, f64);
  expect([](const Tensor& t) { return t * t; }, x, {1, 4, 16}, {2, 4, 8});
  expect([](const Tensor& t) { return t + t; }, x, {2, 4, 8}, {2, 2, 2});
  expect([](const Tensor& t) { return t - t; }, x, {0, 0, 0}, {0, 0, 0});
  expect([](const Tensor& t) { return t / t; }, x, {1, 1, 1}, {0, 0, 0});
  expect([](const Tensor& t) { return maximum(t, t); }, x, {1, 2, 4}, {1, 1, 1});
  expect([](const Tensor& t) { return minimum(t, t); }, x, {1, 2, 4}, {1, 1, 1});
  expect([](const Tensor& t) { return matmul(t, t); }, tensor({{1, 2}, {3, 4}}, f64), {7, 10, 15, 22}, {7, 11, 9, 13});
}

TEST(Engine, broadcast_gradients_are_summed_to_the_shape_of_the_input) {
  Tensor a = leaf(tensor({{1, 2, 3}, {4, 5, 6}}, f64)), b = leaf(tensor({{1}, {2}}, f64)), c = leaf(tensor({{1, 0, -1}}, f64));
  const Tensor loss = sum(square(a * b + c));
  loss.backward();
  EXPECT_TRUE(holds(loss, {314}));
  EXPECT_TRUE(holds(a.grad(), {4, 4, 4, 36, 40, 44}));
  EXPECT_TRUE(holds(b.grad(), {24, 304}));
  EXPECT_EQ(b.grad().shape(), (Dims{2, 1}));
  EXPECT_TRUE(holds(c.grad(), {22, 24, 26}));
  EXPECT_EQ(c.grad().shape(), (Dims{1, 3}));
}

TEST(Engine, gradients_of_two_inputs_do_not_alias) {
  Tensor x = number(2), y = number(3);
  const Tensor s = x + y;
  (y / s).backward();
  EXPECT_TRUE(holds(x.grad(), {-.12}));
  EXPECT_TRUE(holds(y.grad(), {.08}));

  Tensor p = number(2), q = number(3);
  (p + q + 10 * p).backward();
  EXPECT_TRUE(holds(p.grad(), {11}));
  EXPECT_TRUE(holds(q.grad(), {1}));
}

TEST(Engine, a_leaf_owns_the_storage_of_its_gradient) {
  const Tensor upstream = tensor({{1, 2}, {3, 4}}, f64);
  Tensor a = leaf(zeros({2, 2}, f64)), b = leaf(zeros({2, 2}, f64)), c = leaf(zeros({4}, f64)), d = leaf(zeros({1, 2}, f64));
  // Ops that hand the gradient through as it is.
  (a + b + reshape(c, {2, 2}) + expand(d, {2, 2}) + detail::alias(a) + transpose(b, 0, 1)).backward(upstream);
  a.grad().fill_(7);
  EXPECT_TRUE(holds(upstream, {1, 2, 3, 4}));
  EXPECT_TRUE(holds(b.grad(), {2, 5, 5, 8}));
  EXPECT_TRUE(holds(c.grad(), {1, 2, 3, 4}));
  EXPECT_TRUE(holds(d.grad(), {4, 6}));
  c.grad().fill_(7);
  EXPECT_TRUE(holds(upstream, {1, 2, 3, 4}));
  EXPECT_TRUE(c.grad().is_contiguous());

  Tensor x = leaf(zeros({2, 2}, f64));
  x.backward(upstream);
  x.grad().fill_(7);
  EXPECT_TRUE(holds(upstream, {1, 2, 3, 4}));
}

TEST(Engine, gradients_add_up_until_zero_grad) {
  Tensor x = number(3);
  (x * x).backward();
  const Tensor kept = x.grad();
  (x * x).backward();
  EXPECT_TRUE(holds(x.grad(), {12}));
  EXPECT_TRUE(holds(kept, {12})) << "accumulates in place";
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  (x * x).backward();
  EXPECT_TRUE(holds(x.grad(), {6}));
}

TEST(Engine, backward_twice_wants_retain_graph) {
  Tensor x = number(3);
  const Tensor y = x * x;
  y.backward({}, {.retain_graph = true});
  EXPECT_TRUE(holds(x.grad(), {6}));
  y.backward();
  EXPECT_TRUE(holds(x.grad(), {12}));
  EXPECT_THAT(thrown<GradError>([&] { y.backward(); }), AllOf(HasSubstr("mul"), HasSubstr("retain_graph"), HasSubstr("engine_test.cpp")));
  EXPECT_TRUE(holds(x.grad(), {12})) << "a failed backward changes nothing";

  Tensor v = leaf(ones({3}, f64));
  const Tensor total = sum(v);
  total.backward();
  EXPECT_THAT(thrown<GradError>([&] { total.backward(); }), HasSubstr("sum"));

  // A part that two results share is freed with the first.
  const Tensor shared = x * x, first = shared + 1, second = shared * 2;
  first.backward();
  EXPECT_THROW(second.backward(), GradError);
}

TEST(Engine, backward_called_wrongly) {
  Tensor x = leaf(tensor({1, 2}, f64));
  const Tensor y = x * x;
  EXPECT_THAT(thrown<GradError>([&] { y.backward(); }), AllOf(HasSubstr("backward"), HasSubstr("(2,)")));
  EXPECT_THAT(thrown<GradError>([&] { y.backward(ones({3}, f64)); }), AllOf(HasSubstr("(3,)"), HasSubstr("(2,)")));
  EXPECT_THAT(thrown<GradError>([&] { y.backward(ones({2}, f32)); }), AllOf(HasSubstr("f32"), HasSubstr("f64")));
  EXPECT_THAT(thrown<GradError>([&] { (ones({1}, f64) * 2).backward(); }), HasSubstr("history"));
  EXPECT_THROW(Tensor().backward(), Error);
  EXPECT_FALSE(x.grad().defined());
  y.backward(ones({2}, f64));
  EXPECT_TRUE(holds(x.grad(), {2, 4}));
}

TEST(Engine, a_leaf_is_its_own_root) {
  Tensor x = number(3);
  x.backward();
  x.backward(tensor(2, f64));
  EXPECT_TRUE(holds(x.grad(), {3}));
}

TEST(Engine, wrong_gradients_of_a_users_op_are_named) {
  Tensor x = leaf(tensor({1, 2}, f64));
  const auto error = [&](auto make) { return thrown<GradError>([&] { sum(with_backward(x, make)).backward(); }); };
  const auto where = AllOf(HasSubstr("of_a_user"), HasSubstr("engine_test.cpp:"));
  EXPECT_THAT(error([](const Tensor&) -> Grads { return {ones({3}, f64)}; }),
              AllOf(where, HasSubstr("input 0"), HasSubstr("(3,)"), HasSubstr("(2,)")));
  EXPECT_THAT(error([](const Tensor&) -> Grads { return {ones({}, f64)}; }), AllOf(where, HasSubstr("()")));
  EXPECT_THAT(error([](const Tensor&) -> Grads { return {ones({2}, f32)}; }), AllOf(where, HasSubstr("input 0"), HasSubstr("f32"), HasSubstr("f64")));
  EXPECT_THAT(error([](const Tensor&) -> Grads { return {ones({2}, i64)}; }), AllOf(where, HasSubstr("i64")));
  EXPECT_THAT(error([](const Tensor& dy) -> Grads { return {dy, dy}; }), AllOf(where, HasSubstr("2 gradients for 1 input")));
  EXPECT_THAT(error([](const Tensor&) -> Grads { return {}; }), AllOf(where, HasSubstr("0 gradients for 1 input")));
  EXPECT_FALSE(x.grad().defined());
  // One that broadcasts is summed, as for every broadcast input; an undefined one is none.
  sum(with_backward(x, [](const Tensor&) -> Grads { return {ones({5, 2}, f64)}; })).backward();
  EXPECT_TRUE(holds(x.grad(), {5, 5}));
  x.zero_grad();
  sum(with_backward(x, [](const Tensor&) -> Grads { return {Tensor()}; })).backward();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, an_exception_in_a_backward_leaves_every_gradient_as_it_was) {
  Tensor x = number(1), y = number(2);
  y.backward();
  const Tensor bad = with_backward(x, [](const Tensor&) -> Grads { throw std::runtime_error("of the user"); });
  EXPECT_THROW((bad + y * y).backward(), std::runtime_error);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(holds(y.grad(), {1}));
  // The engine is whole again.
  (x * y).backward();
  EXPECT_TRUE(holds(x.grad(), {2}));
}

TEST(Engine, only_wanted_gradients_are_asked_for) {
  Tensor a = number(2), c = tensor(3, f64);
  std::vector<bool> needed;
  const auto op = [&needed](const Tensor& x, const Tensor& y) {
    return record("probe", x.detach() * y.detach(), x, y, [&needed](const BackwardContext& ctx, const Tensor& dy) -> Grads {
      needed = {ctx.needs(0), ctx.needs(1)};
      return {dy, dy};
    });
  };
  op(a, c).backward();
  EXPECT_EQ(needed, (std::vector<bool>{true, false}));
  EXPECT_FALSE(c.grad().defined());
  Tensor b = number(5);
  const Tensor y = op(a, b);
  (void)grad({y}, {b}, {}, {.retain_graph = true});
  EXPECT_EQ(needed, (std::vector<bool>{false, true})) << "grad() asks only for what leads to its inputs";
  (void)grad({y}, {a, b});
  EXPECT_EQ(needed, (std::vector<bool>{true, true}));
}

TEST(Engine, several_outputs_are_slots_of_one_node) {
  Tensor x = leaf(tensor({1, 2, 3, 4, 5, 6}, f64));
  int runs = 0;
  std::vector<bool> defined;
  const auto halves = [&](const Tensor& t) {
    std::vector<Tensor> parts = split(t.detach(), 2);
    return record("halves", parts, t, [&, n = t.numel()](const BackwardContext&, std::span<const Tensor> dys) -> Grads {
      ++runs;
      defined.clear();
      std::vector<Tensor> pieces;
      for (const Tensor& dy : dys) defined.push_back(dy.defined()), pieces.push_back(dy.defined() ? dy : zeros({2}, f64));
      return {cat(pieces)};
    });
  };
  std::vector<Tensor> parts = halves(x);
  (sum(parts[0] * parts[0]) + sum(parts[2] * 10)).backward();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(defined, (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(holds(x.grad(), {2, 4, 0, 0, 10, 10}));
  // A single slot, and gradients at slots.
  parts = halves(x);
  const Tensor y = sum(parts[1] * parts[1] * parts[0]);
  const std::vector<Tensor> at = grad({y}, {parts[0], parts[1]});
  EXPECT_TRUE(holds(at[0], {9, 16}));
  EXPECT_TRUE(holds(at[1], {6, 16}));
}

TEST(Engine, as_many_outputs_as_there_are_slots) {
  const Tensor x = leaf(zeros({65'535}, f64));
  const std::vector<Tensor> parts = split(x, 1);
  const Tensor g = grad({parts.back() * 3 + parts[40'000]}, {x}, {ones({1}, f64)})[0];
  EXPECT_TRUE(holds(slice(g, 0, 40'000, 40'001), {1}));
  EXPECT_TRUE(holds(slice(g, 0, 65'534, 65'535), {3}));
  EXPECT_TRUE(holds(sum(g), {4}));
}

TEST(Engine, vectors_of_inputs_have_edges_of_their_own) {
  std::vector<Tensor> x{number(1), tensor(2, f64), number(3), number(4), number(5), number(6)};
  const Tensor y = record("sum_of_all", tensor(21, f64), x, x[0], [](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    std::vector<Tensor> grads;
    for (int i = 0; i < 7; ++i) grads.push_back(ctx.needs(static_cast<std::size_t>(i)) ? dy * i : Tensor());
    return grads;
  });
  y.backward();
  EXPECT_TRUE(holds(x[0].grad(), {6}));
  EXPECT_FALSE(x[1].grad().defined());
  EXPECT_TRUE(holds(x[5].grad(), {5}));
}

TEST(Engine, record_hands_the_output_back_untouched_when_nothing_is_recorded) {
  const auto rule = [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy}; };
  const Tensor plain = ones({2}, f64), out = ones({2}, f64);
  const std::uint64_t id = out.id();
  EXPECT_EQ(record("probe", out, plain, rule).id(), id);
  Tensor x = leaf(ones({2}, f64));
  {
    const NoGrad off;
    const Tensor y = record("probe", out, x, rule);
    EXPECT_EQ(y.id(), id);
    EXPECT_TRUE(y.is_leaf() && !y.requires_grad());
  }
  // An output that somebody else holds stays free of history.
  const Tensor y = record("probe", out, x, rule);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(out.requires_grad());
  EXPECT_TRUE(out.is_leaf());
  // Also when it is the input itself.
  const Tensor z = record("probe", x, x, rule);
  EXPECT_FALSE(z.is_leaf());
  EXPECT_TRUE(x.is_leaf());
  z.backward(ones({2}, f64));
  EXPECT_TRUE(holds(x.grad(), {1, 1}));
}

TEST(Engine, anomaly_mode_names_op_and_line) {
  const AnomalyMode guard;
  Tensor x = leaf(tensor({-1, 4}, f64));
  std::string here = "engine_test.cpp:" + std::to_string(__LINE__ + 1);
  EXPECT_THAT(thrown<GradError>([&] { (void)sqrt(x); }), AllOf(HasSubstr("sqrt"), HasSubstr(here)));

  Tensor zero = leaf(tensor({0, 4}, f64));
  here = "engine_test.cpp:" + std::to_string(__LINE__ + 1);
  const Tensor y = sqrt(zero);
  EXPECT_THAT(thrown<GradError>([&] { sum(y * 0).backward(); }), AllOf(HasSubstr("sqrt"), HasSubstr("input 0"), HasSubstr(here)));
  // NaN that was there before is nobody's fault.
  const Tensor given = leaf(tensor({NAN, 1}, f64));
  EXPECT_NO_THROW((void)(given * 2));
}

}  // namespace
}  // namespace heed::test
