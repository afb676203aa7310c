#include <gmock/gmock.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/gradcheck.h>
#include <heed/autograd/op.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "close.h"

// What a user sees of the checker: which element it names, what it refuses, what it leaves behind, and that scale decides nothing. That it finds bugs
// of every kind in every op is in mutation_test.cpp.

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Tensors = std::vector<Tensor>;
using Modes = std::vector<GradcheckMode>;

const GradcheckOptions every_element{.mode = GradcheckMode::full(), .locate = false};

/// scale * x^2 with the gradient that `spoil` makes of the right one.
template <class F>
Tensor square_with(const Tensor& x, F spoil, double scale = 1) {
  Tensor y;
  {
    const NoGrad off;
    y = scale * (x * x);
  }
  return record("of_a_user", y, x,
                [x = saved(x), spoil, scale](const BackwardContext&, const Tensor& dy) -> Grads { return {spoil(2 * scale * x.get() * dy)}; });
}

template <class F>
GradcheckReport check_square(F spoil, const Tensor& at, double scale = 1, GradcheckOptions options = every_element) {
  return gradcheck([&](const Tensors& x) { return square_with(x[0], spoil, scale); }, Tensors{at}, options);
}

TEST(Gradcheck, wrong_factors_are_found_and_quoted) {
  const Tensor at = tensor({1, 2}, f64);
  for (double factor : {1.001, .5, -1., 0., 1 + 1e-6}) {
    const GradcheckReport report = check_square([=](const Tensor& g) { return g * factor; }, at);
    ASSERT_FALSE(report.ok) << factor;
    ASSERT_EQ(report.entries.size(), 2u);
    for (const GradcheckEntry& e : report.entries) {
      EXPECT_EQ(e.verdict, "wrong") << e.numeric;
      EXPECT_EQ(e.name, "0");
      const double right = e.index == Dims{0} ? 2 : 4;
      EXPECT_NEAR(e.numeric, right, 1e-7);
      EXPECT_NEAR(e.analytic, factor * right, 1e-7);
      EXPECT_NEAR(e.abs_error, std::abs(1 - factor) * right, 1e-7);
    }
  }
  EXPECT_TRUE(check_square([](const Tensor& g) { return g; }, at).ok);
  const GradcheckReport added = check_square([](const Tensor& g) { return g + 1e-3; }, at);
  EXPECT_FALSE(added.ok);
}

TEST(Gradcheck, small_numbers_are_not_excused) {
  EXPECT_TRUE(check_square([](const Tensor& g) { return g; }, tensor({1, 2}, f64), 1e-6).ok);
  const GradcheckReport doubled = check_square([](const Tensor& g) { return g * 2; }, tensor({1, 2}, f64), 1e-6);
  EXPECT_FALSE(doubled.ok);
  EXPECT_NEAR(doubled.entries[0].numeric / doubled.entries[0].analytic, .5, 1e-6);
  // Beside an output that is much larger.
  const GradcheckReport beside = gradcheck(
      [](const Tensors& x) {
        return Tensors{1e9 * x[0], square_with(
                                       x[0], [](const Tensor& g) { return g * 1.001; }, 1e-9)};
      },
      Tensors{tensor({1, 2}, f64)}, every_element);
  EXPECT_FALSE(beside.ok);
  EXPECT_THAT(beside.entries.at(0).output, HasSubstr("1: "));
}

TEST(Gradcheck, the_one_wrong_element_of_many_is_named) {
  const auto last = [](const Tensor& g) {
    Tensor wrong = g.clone();
    wrong.mutable_data<double>()[wrong.numel() - 1] *= 1.01;
    return wrong;
  };
  const GradcheckReport report = check_square(last, rand({1000}, f64) + 1);
  ASSERT_FALSE(report.ok);
  ASSERT_EQ(report.entries.size(), 1u) << report.message;
  EXPECT_EQ(report.entries[0].index, Dims{999});
  EXPECT_EQ(report.entries[0].output, "(999,)");
  EXPECT_THAT(report.message, AllOf(HasSubstr("FAILED"), HasSubstr("(999,)")));

  // In the right one of several inputs, at its index, among right ones.
  const auto f = [](const Tensors& x) {
    return x[0] * square_with(x[1], [](const Tensor& g) {
             Tensor wrong = g.clone();
             wrong.mutable_data<double>()[4] += 1e-3;
             return wrong;
           });
  };
  Tensors inputs{rand({2, 3}, f64) + 1, rand({2, 3}, f64) + 1};
  inputs[0].named("gain"), inputs[1].named("values");
  const GradcheckReport inner = gradcheck(f, inputs, every_element);
  ASSERT_FALSE(inner.ok);
  EXPECT_EQ(inner.entries[0].name, "values");
  EXPECT_EQ(inner.entries[0].index, (Dims{1, 1}));
  EXPECT_EQ(inner.entries[0].verdict, "wrong");
  EXPECT_EQ(std::count_if(inner.entries.begin(), inner.entries.end(), [](const GradcheckEntry& e) { return e.verdict != "ok"; }), 1);
}

TEST(Gradcheck, a_backward_that_ones_cannot_tell_from_right) {
  const auto zero_backward = [](const char* name, auto forward) {
    return [=](const Tensors& x) {
      Tensor y;
      {
        const NoGrad off;
        y = forward(x[0]);
      }
      return record(name, y, x[0], [shape = y.shape()](const BackwardContext&, const Tensor&) -> Grads { return {zeros(shape, f64)}; });
    };
  };
  EXPECT_FALSE(gradcheck(zero_backward("softmax", [](const Tensor& x) { return softmax(x, 0); }), Tensors{tensor({1, 2, 3}, f64)}).ok);
  EXPECT_FALSE(gradcheck(zero_backward("layer_norm", [](const Tensor& x) { return layer_norm(x, 3); }), Tensors{tensor({1, 2, 4}, f64)}).ok);
}

TEST(Gradcheck, only_the_elements_that_are_wrong_are_named) {
  // A x with a backward that multiplies by A instead of its transpose: the diagonal is right by chance.
  const Tensor a = tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 10}}, f64);
  const auto transposed = [&](const Tensors& x) {
    return record("product", matmul(a, x[0].detach()), x[0], [&](const BackwardContext&, const Tensor& dy) -> Grads { return {matmul(a, dy)}; });
  };
  GradcheckOptions options = every_element;
  options.max_entries = 100;
  const GradcheckReport product = gradcheck(transposed, Tensors{tensor({1, 2, 4}, f64)}, options);
  ASSERT_EQ(product.entries.size(), 3u) << product.message;
  for (const GradcheckEntry& e : product.entries) {
    EXPECT_NE(e.output, "(" + std::to_string(e.index[0]) + ",)") << "the diagonal";
    EXPECT_EQ(e.verdict, "wrong");
  }

  // Softmax of rows whose backward forgets the sum: all elements but those of the row of one. y_i (dy_i - sum y dy).
  const auto dropped = [](const Tensors& x) {
    Tensor y;
    {
      const NoGrad off;
      y = softmax(x[0], -1);
    }
    return record("softmax", y, x[0], [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {y.get() * dy}; });
  };
  const GradcheckReport sums = gradcheck(dropped, Tensors{tensor({{.1, .2}, {0, -100}}, f64)}, options);
  ASSERT_EQ(sums.entries.size(), 3u) << sums.message;
  for (const GradcheckEntry& e : sums.entries) EXPECT_NE(e.index, (Dims{1, 1})) << "where y is 0 nothing is lost";
}

TEST(Gradcheck, right_ops_pass_for_any_inputs) {
  const std::pair<const char*, Tensor (*)(const Tensors&)> functions[] = {
      {"mul", [](const Tensors& x) { return x[0] * x[1]; }},
      {"div", [](const Tensors& x) { return x[0] / (1 + square(x[1])); }},
      {"exp", [](const Tensors& x) { return exp(3 * x[0]); }},
      {"tanh", [](const Tensors& x) { return tanh(x[0] - x[1]); }},
      {"softmax", [](const Tensors& x) { return softmax(4 * x[0], -1); }},
      {"log_softmax", [](const Tensors& x) { return log_softmax(x[0], 0); }},
      {"layer_norm", [](const Tensors& x) { return layer_norm(x[0], 4) * x[1]; }},
      {"matmul", [](const Tensors& x) { return matmul(x[0], transpose(x[1], 0, 1)); }},
      {"logsumexp", [](const Tensors& x) { return logsumexp(x[0]); }},
      {"norm", [](const Tensors& x) { return norm(x[0], 1); }},
      {"nothing left", [](const Tensors& x) { return sum(softmax(x[0], -1), -1); }},
      {"gelu", [](const Tensors& x) { return gelu(x[0]); }},
  };
  for (const auto& [name, f] : functions)
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      manual_seed(seed);
      const GradcheckReport report = gradcheck(f, {randn({3, 4}, f64), randn({3, 4}, f64)}, {.mode = GradcheckMode::full(), .seed = seed});
      ASSERT_TRUE(report.ok) << name << ", seed " << seed << "\n" << report.message;
    }
}

TEST(Gradcheck, scale_decides_nothing) {
  const auto off_by = [](double factor) { return [factor](const Tensor& g) { return g * factor; }; };
  for (double in : {1e-8, 1., 1e8})
    for (double out : {1e-8, 1., 1e8}) {
      const Tensor at = tensor({.3, -1.2, 2}, f64) * in;
      // out * (x / in)^2
      EXPECT_TRUE(check_square(off_by(1), at, out / (in * in)).ok) << in << " " << out;
      for (double factor : {1.001, 1.00001, 0., -1.})
        EXPECT_FALSE(check_square(off_by(factor), at, out / (in * in)).ok) << in << " " << out << " " << factor;
      const GradcheckReport smooth =
          gradcheck([=](const Tensors& x) { return out * softmax(x[0] * (1 / in), 0); }, Tensors{at}, {.mode = GradcheckMode::full()});
      EXPECT_TRUE(smooth.ok) << smooth.message;
      const GradcheckReport second =
          gradgradcheck([=](const Tensors& x) { return out * softmax(x[0] * (1 / in), 0); }, Tensors{at}, {.mode = GradcheckMode::full()});
      EXPECT_TRUE(second.ok) << second.message;
    }
}

TEST(Gradcheck, inputs_of_different_scales_together) {
  const GradcheckReport report = gradcheck([](const Tensors& x) { return exp(x[0] * 1e6) * tanh(x[1] * 1e-6) * x[2]; },
                                           {tensor({3e-6, -2e-6}, f64), tensor({1e6, 2e6}, f64), tensor({1, 1e-12}, f64)}, every_element);
  EXPECT_TRUE(report.ok) << report.message;
}

TEST(Gradcheck, kinks_are_called_kinks_where_they_are) {
  const auto verdict = [](Tensor (*f)(const Tensors&), const Tensor& at) {
    const GradcheckReport report = gradcheck(f, Tensors{at}, every_element);
    return report.ok ? std::string("ok") : report.entries.at(0).verdict;
  };
  const auto relu_of = [](const Tensors& x) { return relu(x[0]); };
  EXPECT_EQ(verdict(relu_of, tensor({1, 0, -1}, f64)), "kink");
  const GradcheckReport mixed =
      gradcheck([](const Tensors& x) { return relu(x[0]) + x[0].detach(); }, Tensors{tensor({1, 0, -1}, f64)}, {.max_entries = 0});
  EXPECT_THAT(mixed.message, Not(HasSubstr("At a kink"))) << "unlisted elements count too";
  EXPECT_THAT(gradcheck(relu_of, Tensors{tensor({1, 0, -1}, f64)}).message, AllOf(HasSubstr("At a kink"), Not(HasSubstr("node 0"))));
  EXPECT_EQ(verdict(relu_of, tensor({1, .5, -1}, f64)), "ok");
  // Within a step of the kink, but beside it: a finer step tells.
  for (double near : {1e-5, -1e-5, 1e-6, -1e-6}) EXPECT_EQ(verdict(relu_of, tensor({1, near, -1}, f64)), "ok") << near;
  // Where backward says the mean of both sides, it says what the difference does.
  EXPECT_EQ(verdict([](const Tensors& x) { return abs(x[0]); }, tensor({0, 1}, f64)), "ok");
  EXPECT_EQ(verdict([](const Tensors& x) { return maximum(x[0], 1); }, tensor({1, 2}, f64)), "ok");
  EXPECT_EQ(verdict([](const Tensors& x) { return clamp(x[0], -1, 1); }, tensor({1, .5}, f64)), "kink");
  EXPECT_EQ(verdict([](const Tensors& x) { return max(x[0]); }, tensor({1, 3, 3}, f64)), "kink");
  // A minimum is none.
  EXPECT_EQ(verdict([](const Tensors& x) { return square_with(x[0], [](const Tensor& g) { return g + 1e-3; }); }, tensor({0, 1}, f64)), "wrong");
  EXPECT_EQ(verdict([](const Tensors& x) { return square(x[0]); }, tensor({0, 1}, f64)), "ok");
  EXPECT_EQ(verdict([](const Tensors& x) { return abs(x[0]) * x[0]; }, tensor({0, 1}, f64)), "ok");
}

TEST(Gradcheck, what_is_not_a_number_is_said) {
  const GradcheckReport forward = gradcheck([](const Tensors& x) { return log(x[0]); }, Tensors{tensor({-1, 1}, f64)});
  EXPECT_FALSE(forward.ok);
  EXPECT_THAT(forward.message, HasSubstr("NaN"));
  const GradcheckReport backward = check_square([](const Tensor& g) { return g * std::numeric_limits<double>::quiet_NaN(); }, tensor({1, 2}, f64));
  EXPECT_FALSE(backward.ok);
  EXPECT_EQ(backward.entries.at(0).verdict, "nan");
  // Just beyond the element: the difference is not a number.
  const GradcheckReport edge = gradcheck([](const Tensors& x) { return sqrt(x[0]); }, Tensors{tensor({0, 1}, f64)}, every_element);
  EXPECT_FALSE(edge.ok);
  EXPECT_EQ(edge.entries.at(0).verdict, "nan");
  EXPECT_EQ(edge.entries.at(0).index, Dims{0});
}

TEST(Gradcheck, a_function_that_is_not_deterministic_is_called_so) {
  const GradcheckReport report = gradcheck([](const Tensors& x) { return dropout(x[0], .5, true); }, Tensors{ones({20}, f64)});
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.message, AllOf(HasSubstr("not deterministic"), HasSubstr("dropout")));
}

TEST(Gradcheck, cut_off_outputs) {
  const GradcheckReport detached = gradcheck([](const Tensors& x) { return x[0].detach() * 2; }, Tensors{tensor({1, 2}, f64)}, every_element);
  ASSERT_FALSE(detached.ok);
  EXPECT_NEAR(detached.entries.at(0).numeric, 2, 1e-9);
  EXPECT_EQ(detached.entries.at(0).analytic, 0);
  EXPECT_THAT(detached.message, HasSubstr("history"));
  const GradcheckReport constant = gradcheck([](const Tensors&) { return ones({2}, f64); }, Tensors{tensor({1, 2}, f64)});
  EXPECT_TRUE(constant.ok);
  EXPECT_THAT(constant.message, HasSubstr("input 0 has no effect on any output"));
  const Tensors pair{tensor({1, 2}, f64), tensor({3, 4}, f64)};
  for (const GradcheckMode& mode : {GradcheckMode::full(), GradcheckMode::directional(), GradcheckMode::sampled(2)}) {
    const GradcheckReport one = gradcheck([](const Tensors& x) { return square(x[1]); }, pair, {.mode = mode});
    EXPECT_THAT(one.message, AllOf(HasSubstr("input 0 has no effect"), Not(HasSubstr("input 1 has no effect"))));
  }
}

TEST(Gradcheck, what_it_does_not_take) {
  const auto f = [](const Tensors& x) { return x[0] * 2; };
  EXPECT_THAT(thrown<DTypeError>([&] { gradcheck(f, {ones({2}, f32)}); }), AllOf(HasSubstr("input 0"), HasSubstr("f32"), HasSubstr("allow_f32")));
  EXPECT_THAT(thrown<DTypeError>([&] { gradcheck(f, {ones({2}, i64)}); }), HasSubstr("i64"));
  EXPECT_THAT(thrown<Error>([&] { gradcheck(f, {Tensor()}); }), HasSubstr("undefined"));
  Tensor x = leaf(ones({2}, f64)), y = x * 2;
  y.named("scores");
  EXPECT_THAT(thrown<GradError>([&] { gradcheck(f, {y}); }), AllOf(HasSubstr("scores"), HasSubstr("leaf"), HasSubstr("mul")));
  EXPECT_THAT(thrown<GradError>([&] { gradcheck([&] { return x * 2; }, {{"W_q", y}}); }), HasSubstr("W_q"));
  EXPECT_THAT(thrown<ShapeError>([&] { gradcheck(f, {expand(ones({1}, f64), {2})}); }), AllOf(HasSubstr("share memory"), HasSubstr("(2,)")));
  const Tensor base = ones({4}, f64);
  EXPECT_THAT(thrown<ShapeError>([&] {
                gradcheck([](const Tensors& t) { return t[0] * t[1]; }, {base, reshape(base, {4})});
              }),
              HasSubstr("share memory"));
  EXPECT_THAT(thrown<DTypeError>([&] { gradcheck([](const Tensors& t) { return gt(t[0], 0); }, {ones({2}, f64)}); }), HasSubstr("output"));
}

TEST(Gradcheck, what_it_takes) {
  // A stride of 0 along a dim of size 1, views, the same tensor twice, parts of one storage.
  Tensor one = randn({2, 1, 3}, f64);
  EXPECT_TRUE(gradcheck([](const Tensors& x) { return exp(x[0]); }, Tensors{expand(slice(one, 1, 0, 1), {2, 1, 3})}).ok);
  EXPECT_TRUE(gradcheck([](const Tensors& x) { return exp(x[0]); }, Tensors{transpose(randn({2, 3}, f64), 0, 1)}).ok);
  const Tensor base = randn({6}, f64);
  EXPECT_TRUE(gradcheck([](const Tensors& x) { return x[0] * x[1]; }, Tensors{slice(base, 0, 0, 3), slice(base, 0, 3, 6)}).ok);
  EXPECT_TRUE(gradcheck([](const Tensors& x) { return x[0] * x[1]; }, Tensors{base, base}).ok);
  EXPECT_TRUE(gradcheck([](const Tensors& x) { return x[0] * 2; }, Tensors{zeros({0, 3}, f64)}).ok);
  EXPECT_TRUE(gradcheck([](const Tensors&) { return Tensors{}; }, Tensors{ones({2}, f64)}).ok);
  EXPECT_TRUE(gradcheck([] { return ones({2}, f64); }, NamedTensors{}).ok);
}

TEST(Gradcheck, outputs_are_of_one_kind) {
  const Tensor x = randn({3}, f64).requires_grad_();
  const auto refused = [&](const std::function<Tensors(int)>& at_call) {
    int calls = 0;
    return thrown<Error>([&] { gradcheck([&] { return at_call(++calls); }, NamedTensors{{"x", x}}); });
  };
  EXPECT_EQ(refused([&](int call) { return call > 4 ? Tensors{} : Tensors{x * 2.0}; }),
            "gradcheck: the function's outputs change with its inputs: f64 (3,) at first, none near them");
  EXPECT_EQ(refused([&](int call) {
              return Tensors{call > 4 ? x * 2 : expand(x * 2, {2, 3}) * 1.0};
            }),
            "gradcheck: the function's outputs change with its inputs: f64 (2, 3) at first, f64 (3,) near them");
  EXPECT_EQ(refused([&](int call) { return Tensors{call > 4 ? (x * 2).to(f32) : x * 2}; }),
            "gradcheck: the function's outputs change with its inputs: f64 (3,) at first, f32 (3,) near them");
  EXPECT_EQ(refused([&](int call) { return Tensors{call > 4 ? Tensor() : x * 2}; }),
            "gradcheck: the function's outputs change with its inputs: f64 (3,) at first, undefined near them");
}

TEST(Gradcheck, single_precision_when_asked_for) {
  const GradcheckOptions f32_too{.mode = GradcheckMode::full(), .allow_f32 = true};
  const auto good = [](const Tensors& x) { return softmax(matmul(x[0], x[1]), -1); };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    manual_seed(seed);
    const GradcheckReport report = gradcheck(good, {randn({2, 3}), randn({3, 4})}, f32_too);
    EXPECT_TRUE(report.ok) << report.message;
  }
  EXPECT_FALSE(check_square([](const Tensor& g) { return g * 1.05; }, tensor({1, 2}), 1, f32_too).ok);
}

/// The bits, so that NaN equals itself and -0 is not 0.
std::vector<std::uint64_t> bits(const Tensor& t) {
  std::vector<std::uint64_t> out;
  for (double v : t.to_vector<double>()) out.push_back(std::bit_cast<std::uint64_t>(v));
  return out;
}

TEST(Gradcheck, leaves_are_as_before) {
  for (const GradcheckMode& mode : Modes{GradcheckMode::full(), GradcheckMode::directional(), GradcheckMode::sampled(3)}) {
    Tensor x = tensor({.1, -0.0, 1e-300, 1e300 * 1e-280}, f64), w = leaf(tensor({1, 2, 3, 4}, f64));
    const auto before_x = bits(x), before_w = bits(w);
    const Tensor pending = sum(w * w);
    sum(w * 5).backward();
    EXPECT_TRUE(gradcheck([&] { return x * w; }, {{"x", x}, {"w", w}}, {.mode = mode}).ok);
    (void)gradcheck([&] { return x * w.detach(); }, {{"x", x}, {"w", w}}, {.mode = mode});
    EXPECT_TRUE(gradgradcheck([&] { return x * w; }, {{"x", x}, {"w", w}}, {.mode = mode}).ok);
    EXPECT_EQ(bits(x), before_x);
    EXPECT_EQ(bits(w), before_w);
    EXPECT_TRUE(holds(w.grad(), {5, 5, 5, 5}, 0));
    EXPECT_FALSE(x.grad().defined());
    EXPECT_FALSE(x.requires_grad());
    EXPECT_TRUE(w.requires_grad());
    EXPECT_NO_THROW(pending.backward()) << "what was saved before has not changed";
  }
}

TEST(Gradcheck, leaves_are_as_before_after_an_exception) {
  for (const GradcheckMode& mode : Modes{GradcheckMode::full(), GradcheckMode::directional(), GradcheckMode::sampled(3)})
    for (int throw_at : {1, 2, 4, 8, 12, 15}) {
      Tensor x = tensor({.1, .2, .3}, f64);
      const auto before = bits(x);
      const Tensor w = leaf(ones({3}, f64)), pending = sum(x * w);
      int calls = 0;
      const auto f = [&] {
        if (++calls == throw_at) throw std::runtime_error("of the function");
        return x * x;
      };
      EXPECT_THROW(gradcheck(f, NamedTensors{{"x", x}}, {.mode = mode}), std::runtime_error) << throw_at;
      EXPECT_EQ(bits(x), before);
      EXPECT_FALSE(x.requires_grad());
      EXPECT_TRUE((w * 1).requires_grad());
      EXPECT_NO_THROW(pending.backward());
    }
}

TEST(Gradcheck, works_under_no_grad_and_in_anomaly_mode) {
  {
    const NoGrad off;
    EXPECT_TRUE(gradcheck([](const Tensors& x) { return exp(x[0]); }, Tensors{randn({3}, f64)}).ok);
    EXPECT_FALSE((leaf(ones({2}, f64)) * 2).requires_grad());
  }
  const AnomalyMode guard;
  EXPECT_TRUE(gradcheck([](const Tensors& x) { return exp(x[0]); }, Tensors{randn({3}, f64)}).ok);
}

TEST(Gradcheck, samples_and_directions_find_what_is_wrong_everywhere) {
  const Tensor at = rand({40, 50}, f64) + 1;
  for (const GradcheckMode& mode : Modes{GradcheckMode::directional(), GradcheckMode::sampled(8)}) {
    const GradcheckOptions options{.mode = mode, .locate = false};
    EXPECT_TRUE(check_square([](const Tensor& g) { return g; }, at, 1, options).ok);
    for (double factor : {1.001, .5, -1., 0.}) EXPECT_FALSE(check_square([=](const Tensor& g) { return g * factor; }, at, 1, options).ok) << factor;
  }
  const GradcheckReport sampled = check_square([](const Tensor& g) { return g; }, at, 1, {.mode = GradcheckMode::sampled(8)});
  EXPECT_THAT(sampled.message, HasSubstr("1992 of 2000 elements were not checked"));
  EXPECT_THAT(check_square([](const Tensor& g) { return g; }, at, 1, {.mode = GradcheckMode::full()}).message, Not(HasSubstr("not checked")));
}

TEST(Gradcheck, second_order) {
  // The first derivative is right, the derivative of the rule is not: it is made of numbers that have lost their history.
  const auto half_cut = [](const Tensors& x) {
    Tensor y;
    {
      const NoGrad off;
      y = x[0] * x[0] * x[0];
    }
    return record("cube", y, x[0],
                  [x = saved(x[0])](const BackwardContext&, const Tensor& dy) -> Grads { return {3 * x.get() * x.get().detach() * dy}; });
  };
  EXPECT_TRUE(gradcheck(half_cut, Tensors{tensor({1, 2}, f64)}).ok);
  const GradcheckReport report = gradgradcheck(half_cut, Tensors{tensor({1, 2}, f64)}, every_element);
  ASSERT_FALSE(report.ok);
  EXPECT_NEAR(report.entries.at(0).analytic / report.entries.at(0).numeric, .5, 1e-6);
  EXPECT_TRUE(gradgradcheck([](const Tensors& x) { return x[0] * x[0] * x[0]; }, Tensors{tensor({1, 2}, f64)}).ok);
  EXPECT_THAT(gradgradcheck([](const Tensors& x) { return exp(x[0]); }, Tensors{ones({2}, f64)}).message, HasSubstr("cotangent 0"));
}

TEST(Gradcheck, the_report_names_inputs_and_has_an_entry_for_each) {
  const Tensor a = leaf(randn({2, 3}, f64)), b = leaf(randn({3, 2}, f64));
  const GradcheckReport report = gradcheck([&] { return matmul(a, b); }, {{"W_q", a}, {"W_k", b}}, every_element);
  EXPECT_TRUE(static_cast<bool>(report));
  ASSERT_EQ(report.entries.size(), 2u);
  EXPECT_EQ(report.entries[0].name, "W_q");
  EXPECT_EQ(report.entries[1].verdict, "ok");
  EXPECT_THAT(report.message, AllOf(HasSubstr("W_q"), HasSubstr("W_k"), HasSubstr("ok"), Not(HasSubstr("FAILED"))));
  EXPECT_THAT(report.to_json(), AllOf(HasSubstr("\"ok\""), HasSubstr("\"W_k\"")));
}

TEST(Gradcheck, at_most_so_many_entries_of_an_input) {
  GradcheckOptions options = every_element;
  options.max_entries = 3;
  const GradcheckReport report = check_square([](const Tensor& g) { return g * 2; }, rand({10}, f64) + 1, 1, options);
  EXPECT_EQ(report.entries.size(), 3u);
  EXPECT_THAT(report.message, HasSubstr("10"));
}

}  // namespace
}  // namespace heed::test
