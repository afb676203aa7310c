#include <gmock/gmock.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/gradcheck.h>
#include <heed/autograd/op.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include <nlohmann/json.hpp>

#include "close.h"

// Verdicts that are neither right nor wrong: a backward that gives other values each time, and differences that cannot tell.

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Tensors = std::vector<Tensor>;
const GradcheckMode all_modes[] = {GradcheckMode::full(), GradcheckMode::directional(), GradcheckMode::sampled()};

/// An op by its forward and the gradient that `spoil` makes of dy f'(x).
template <class F, class Slope, class Spoil>
Tensor op_with(const Tensor& x, F f, Slope slope, Spoil spoil) {
  Tensor y;
  {
    const NoGrad off;
    y = f(x);
  }
  return record("of_a_user", y, x,
                [x = saved(x), slope, spoil](const BackwardContext&, const Tensor& dy) -> Grads { return {spoil(dy * slope(x.get()))}; });
}

template <class Spoil>
Tensor cube_with(const Tensor& x, Spoil spoil) {
  return op_with(
      x, [](const Tensor& t) { return t * t * t; }, [](const Tensor& t) { return 3 * t * t; }, spoil);
}

const auto right = [](const Tensor& g) { return g; };
const auto nothing = [](const Tensor& g) { return g * 0; };
/// Half of what it should be in the first element.
const auto half_of_first = [](const Tensor& g) {
  Tensor wrong = g.detach().clone();
  wrong.mutable_data<double>()[0] *= 0.5;
  return wrong;
};

// Nondeterminism

TEST(GradcheckVerdicts, a_backward_with_a_counter_is_nondeterministic) {
  const Tensor x = tensor({.7, -1.3, 2.1}, f64);
  for (const GradcheckMode& mode : all_modes) {
    int calls = 0;
    const auto fn = [&](const Tensors& in) {
      return sum(tanh(cube_with(2 * in[0], [&calls](const Tensor& g) { return g * (1 + 0.1 * (calls++ % 2)); })));
    };
    const GradcheckReport report = gradcheck(fn, Tensors{x}, {.mode = mode});
    EXPECT_FALSE(report.ok);
    EXPECT_EQ(report.verdict, "nondeterministic");
    EXPECT_THAT(report.message, AllOf(HasSubstr("nondeterministic"), HasSubstr("first in the backward of node 1, of_a_user, called at"),
                                      HasSubstr("gradcheck_verdicts_test.cpp"), Not(HasSubstr("is wrong"))));
    EXPECT_EQ(nlohmann::json::parse(report.to_json())["verdict"], "nondeterministic");
  }
}

TEST(GradcheckVerdicts, a_backward_that_draws_is_nondeterministic) {
  const Tensor x = tensor({.7, -1.3, 2.1}, f64);
  const auto noisy = [](const Tensors& in) { return sum(cube_with(in[0], [](const Tensor& g) { return g + 1e-3 * randn(g.shape(), f64); })); };
  EXPECT_THAT(gradcheck(noisy, Tensors{x}).message, AllOf(HasSubstr("nondeterministic"), HasSubstr("backward of node 0, of_a_user")));
  // Seeded in the function, each backward of one graph still draws anew.
  const auto seeded = [&](const Tensors& in) {
    manual_seed(1);
    return noisy(in);
  };
  EXPECT_EQ(gradcheck(seeded, Tensors{x}).verdict, "nondeterministic");
}

TEST(GradcheckVerdicts, a_backward_that_changes_with_each_graph_is_nondeterministic) {
  int graphs = 0;
  const auto fn = [&](const Tensors& in) {
    const double factor = ++graphs;
    return cube_with(in[0], [factor](const Tensor& g) { return g * factor; });
  };
  const GradcheckReport report = gradcheck(fn, Tensors{tensor({1, 2}, f64)});
  EXPECT_THAT(report.message, AllOf(HasSubstr("nondeterministic"), HasSubstr("backward of node 0, of_a_user")));
}

TEST(GradcheckVerdicts, a_backward_that_changes_late_is_nondeterministic) {
  // Only after all that is tried beforehand.
  int calls = 0;
  const auto fn = [&](const Tensors& in) { return cube_with(in[0], [&](const Tensor& g) { return ++calls > 4 ? g * calls : g; }); };
  EXPECT_EQ(gradcheck(fn, Tensors{tensor({1, 2, 3}, f64)}).verdict, "nondeterministic");
}

TEST(GradcheckVerdicts, a_second_order_that_is_nondeterministic) {
  int calls = 0;
  const auto fn = [&](const Tensors& in) { return sum(cube_with(exp(in[0]), [&](const Tensor& g) { return g * (1 + 0.1 * (++calls % 2)); })); };
  const GradcheckReport report = gradgradcheck(fn, Tensors{tensor({.7, -1.3}, f64)});
  EXPECT_EQ(report.verdict, "nondeterministic");
  EXPECT_THAT(report.message, AllOf(HasSubstr("the backward of"), HasSubstr("of_a_user")));
}

TEST(GradcheckVerdicts, the_random_op_is_named) {
  const Tensors x{ones({4, 5}, f64)};
  const GradcheckReport dropped = gradcheck([](const Tensors& in) { return tanh(dropout(exp(in[0]), .5, true)); }, x);
  EXPECT_THAT(dropped.message, AllOf(HasSubstr("first in node 1, dropout, called at"), HasSubstr("manual_seed"), HasSubstr("training = false")));
  const GradcheckReport second = gradgradcheck([](const Tensors& in) { return tanh(dropout(exp(in[0]), .5, true)); }, x);
  EXPECT_THAT(second.message, AllOf(HasSubstr("nondeterministic"), HasSubstr("dropout")));
  const auto attend = [](const Tensors& in) { return scaled_dot_product_attention(in[0], in[0], in[0], {.dropout_p = .5, .training = true}).output; };
  const GradcheckReport attention = gradcheck(attend, x);
  EXPECT_THAT(attention.message, AllOf(HasSubstr("nondeterministic"), HasSubstr("first in "), HasSubstr("gradcheck_verdicts_test.cpp")));
  // What is drawn outside of ops shows where it comes in.
  const GradcheckReport drawn = gradcheck([](const Tensors& in) { return exp(in[0]) * randn({4, 5}, f64); }, x);
  EXPECT_THAT(drawn.message, HasSubstr("first in input 1 of node 1, mul"));
  const auto seeded = [](const Tensors& in) {
    manual_seed(3);
    return dropout(in[0], .5, true);
  };
  EXPECT_TRUE(gradcheck(seeded, x).ok);
}

TEST(GradcheckVerdicts, a_tolerance_for_what_is_not_deterministic) {
  int calls = 0;
  const auto fn = [&](const Tensors& in) { return cube_with(in[0], [&](const Tensor& g) { return g + 1e-12 * (++calls % 3); }); };
  const Tensors x{tensor({.7, -1.3, 2.1}, f64)};
  for (const GradcheckMode& mode : all_modes) {
    EXPECT_EQ(gradcheck(fn, x, {.mode = mode}).verdict, "nondeterministic");
    EXPECT_TRUE(gradcheck(fn, x, {.mode = mode, .nondet_tol = 1e-11}).ok);
    EXPECT_EQ(gradcheck(fn, x, {.mode = mode, .nondet_tol = 1e-13}).verdict, "nondeterministic");
  }
  const auto half = [](const Tensors& in) { return cube_with(in[0], [](const Tensor& g) { return g * .5; }); };
  EXPECT_EQ(gradcheck(half, x, {.nondet_tol = 1e-11}).verdict, "wrong");
  const auto rough = [&](const Tensors& in) { return cube_with(in[0], [&](const Tensor& g) { return g * (1 + 1e-15 * (++calls % 3)); }); };
  EXPECT_EQ(gradgradcheck(rough, x).verdict, "nondeterministic");
  EXPECT_TRUE(gradgradcheck(rough, x, {.nondet_tol = 1e-12}).ok);
  EXPECT_THAT(thrown<Error>([&] { gradcheck(fn, x, {.nondet_tol = -1}); }), HasSubstr("nondet_tol"));
}

// Differences that cannot tell

TEST(GradcheckVerdicts, a_gradient_lost_in_an_offset) {
  const Tensors x{tensor({.7, -1.3, 2.1}, f64)};
  for (const GradcheckMode& mode : all_modes) {
    // As a node of its own, and with the offset inside of the op.
    const auto outside = [](auto spoil) { return [=](const Tensors& in) { return sum(cube_with(in[0], spoil)) + 1e12; }; };
    const auto inside = [](auto spoil) {
      return [=](const Tensors& in) {
        return op_with(
            in[0], [](const Tensor& t) { return sum(t * t * t) + 1e12; }, [](const Tensor& t) { return 3 * t * t; }, spoil);
      };
    };
    const GradcheckReport told = gradcheck(outside(nothing), x, {.mode = mode});
    EXPECT_FALSE(told.ok) << told.message;
    EXPECT_EQ(told.verdict, "wrong");
    EXPECT_THAT(told.message, HasSubstr("of_a_user, gradient of input 0 is 0 and should not be"));
    EXPECT_EQ(gradcheck(inside(nothing), x, {.mode = mode}).verdict, "wrong");
    EXPECT_TRUE(gradcheck(outside(right), x, {.mode = mode}).ok);
    EXPECT_TRUE(gradcheck(inside(right), x, {.mode = mode}).ok);
  }
}

TEST(GradcheckVerdicts, what_nothing_can_tell_is_undecided) {
  const Tensors x{tensor({.7, -1.3, 2.1}, f64)};
  const auto cube = [](auto spoil) {
    return [=](const Tensors& in) {
      return op_with(
          in[0], [](const Tensor& t) { return sum(t * t * t) + 1e15; }, [](const Tensor& t) { return 3 * t * t; }, spoil);
    };
  };
  for (const GradcheckMode& mode : all_modes) {
    for (const GradcheckReport& report : {gradcheck(cube(right), x, {.mode = mode}), gradcheck(cube(nothing), x, {.mode = mode})}) {
      EXPECT_FALSE(report.ok);
      EXPECT_EQ(report.verdict, "undecided") << report.message;
      EXPECT_THAT(report.message, AllOf(HasSubstr("UNDECIDED"), HasSubstr("What helps"), HasSubstr("of_a_user"), HasSubstr("allow_undecided")));
      ASSERT_FALSE(report.entries.empty());
      EXPECT_EQ(report.entries[0].verdict, "undecided");
      EXPECT_THAT(report.to_json(), HasSubstr("\"undecided\""));
    }
    EXPECT_TRUE(gradcheck(cube(right), x, {.mode = mode, .allow_undecided = true}).ok);
    EXPECT_EQ(gradcheck(cube([](const Tensor& g) { return g + 1e7; }), x, {.mode = mode, .allow_undecided = true}).verdict, "wrong");
  }
}

TEST(GradcheckVerdicts, scale_makes_nothing_undecided) {
  for (double in : {1e-8, 1., 1e8})
    for (double out : {1e-8, 1., 1e8}) {
      const auto f = [=](auto spoil, double offset) {
        return [=](const Tensors& x) { return out * (sum(cube_with(x[0] * (1 / in), spoil)) + offset); };
      };
      const Tensors x{tensor({.7, -1.3, 2.1}, f64) * in};
      EXPECT_TRUE(gradcheck(f(right, 1e12), x).ok) << in << " " << out;
      EXPECT_EQ(gradcheck(f(nothing, 1e12), x).verdict, "wrong") << in << " " << out;
    }
}

TEST(GradcheckVerdicts, a_small_gradient_summed_with_a_large_one) {
  // 3e-10 beside 27, as elements of one input and as inputs of their own, by one op or by several.
  const Tensor x = tensor({1e-5, 3}, f64), one = tensor({1}, f64), three = tensor({3}, f64);
  const auto sum_of_cubes = [](auto spoil) {
    return [=](const Tensors& in) {
      return op_with(
          in[0], [](const Tensor& t) { return sum(t * t * t); }, [](const Tensor& t) { return 3 * t * t; }, spoil);
    };
  };
  const auto apart = [](auto spoil) { return [=](const Tensors& in) { return 1e-10 * cube_with(in[0], spoil) + in[1] * in[1] * in[1]; }; };
  for (const GradcheckMode& mode : {GradcheckMode::full(), GradcheckMode::sampled()}) {
    EXPECT_FALSE(gradcheck([](const Tensors& in) { return sum(cube_with(in[0], half_of_first)); }, Tensors{x}, {.mode = mode}).ok);
    EXPECT_FALSE(gradcheck(sum_of_cubes(half_of_first), Tensors{x}, {.mode = mode}).ok);
    EXPECT_TRUE(gradcheck(sum_of_cubes(right), Tensors{x}, {.mode = mode}).ok);
  }
  for (const GradcheckMode& mode : all_modes) {
    EXPECT_FALSE(gradcheck(apart(half_of_first), Tensors{one, three}, {.mode = mode}).ok);
    EXPECT_TRUE(gradcheck(apart(right), Tensors{one, three}, {.mode = mode}).ok);
  }
}

TEST(GradcheckVerdicts, derivatives_that_are_0_are_right) {
  manual_seed(5);
  const Tensor w = randn({4, 4}, f64), x = randn({3, 4}, f64), b = randn({4}, f64);
  for (const GradcheckMode& mode : all_modes) {
    // A bias of keys moves all scores of a row alike.
    const auto keys = [](const Tensors& in) { return matmul(softmax(matmul(in[0], transpose(matmul(in[0], in[1]) + in[2], 0, 1)), -1), in[0]); };
    const GradcheckReport bias = gradcheck(keys, Tensors{x, w, b}, {.mode = mode});
    EXPECT_TRUE(bias.ok) << bias.message;
    const GradcheckReport second = gradgradcheck(keys, Tensors{x, w, b}, {.mode = mode});
    EXPECT_TRUE(second.ok) << second.message;
    const auto doubled_bias = [&](const Tensors& in) {
      return matmul(softmax(matmul(in[0], transpose(matmul(in[0], in[1]) + cube_with(in[2], [](const Tensor& g) { return 2 * g; }), 0, 1)), -1),
                    in[0]);
    };
    const GradcheckReport doubled = gradcheck(doubled_bias, Tensors{x, w, b}, {.mode = mode});
    EXPECT_FALSE(doubled.ok) << "twice 0 is 0, but the node is wrong: " << doubled.message;
    EXPECT_TRUE(gradcheck([](const Tensors& in) { return sum(softmax(in[0], -1)); }, Tensors{x}, {.mode = mode}).ok);
    EXPECT_TRUE(gradcheck([](const Tensors& in) { return sum(layer_norm(in[0], 4) + 100, -1); }, Tensors{x}, {.mode = mode}).ok);
    const GradcheckReport steep = gradcheck([](const Tensors& in) { return logsumexp(in[0]); }, Tensors{tensor({0, -30, -100}, f64)}, {.mode = mode});
    EXPECT_TRUE(steep.ok) << steep.message;
  }
}

TEST(GradcheckVerdicts, beside_a_kink_or_an_edge_steps_shrink) {
  const auto verdict = [](const std::function<Tensor(const Tensors&)>& f, const Tensor& at) {
    const GradcheckReport report = gradcheck(f, Tensors{at}, {.mode = GradcheckMode::full(), .locate = false});
    return report.verdict;
  };
  const auto relu_of = [](const Tensors& x) { return relu(x[0]); };
  const auto relu_sum = [](const Tensors& x) { return sum(relu(x[0])); };
  for (double near : {1e-5, 1e-7, 1e-9, -1e-9}) {
    EXPECT_EQ(verdict(relu_of, tensor({1, near, -1}, f64)), "ok") << near;
    EXPECT_EQ(verdict(relu_sum, tensor({1, near, -1}, f64)), "ok") << near;
  }
  EXPECT_EQ(verdict(relu_of, tensor({1, 1e-12, -1}, f64)), "ok");
  EXPECT_EQ(verdict(relu_of, tensor({1, 0, -1}, f64)), "kink");
  EXPECT_EQ(verdict([](const Tensors& x) { return max(x[0]); }, tensor({1, 3, 3 + 1e-8}, f64)), "ok");
  EXPECT_EQ(verdict([](const Tensors& x) { return max(x[0]); }, tensor({1, 3, 3}, f64)), "kink");
  // The square root ends at 0: a wide step leaves its domain.
  EXPECT_EQ(verdict([](const Tensors& x) { return sqrt(x[0]); }, tensor({1, 1e-9}, f64)), "ok");
  EXPECT_EQ(verdict([](const Tensors& x) { return log(x[0]); }, tensor({1, 1e-9}, f64)), "ok");
  EXPECT_EQ(verdict([](const Tensors& x) { return sqrt(x[0]); }, tensor({1, 0}, f64)), "nan");
  // What is wrong beside a kink is wrong.
  const auto doubled = [](const Tensors& x) {
    return op_with(
        x[0], [](const Tensor& t) { return relu(t); }, [](const Tensor& t) { return gt(t, 0).to(f64); }, [](const Tensor& g) { return g * 2; });
  };
  EXPECT_EQ(verdict(doubled, tensor({1e-9, -1}, f64)), "wrong");
}

TEST(GradcheckVerdicts, a_kink_of_one_output_does_not_hide_another_that_is_wrong) {
  const auto fn = [](const Tensors& in) { return Tensors{relu(in[0]), cube_with(in[0] + 1, [](const Tensor& g) { return g * 1.001; })}; };
  EXPECT_EQ(gradcheck(fn, Tensors{tensor({1e-6}, f64)}, {.mode = GradcheckMode::full()}).verdict, "wrong");
}

}  // namespace
}  // namespace heed::test
