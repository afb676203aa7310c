#include <gmock/gmock.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include <cmath>
#include <limits>

#include "close.h"

// Values and gradients at the places where libraries differ or go wrong: zeros, ties, nothing, infinities, numbers that cancel.

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan_value = std::numeric_limits<double>::quiet_NaN();

/// The gradient of sum(f(x) * upstream) at x.
template <class F>
Tensor gradient(F f, const Tensor& x, const Tensor& upstream = {}) {
  const Tensor at = leaf(x.clone()), y = f(at);
  return grad({y}, {at}, {upstream.defined() ? upstream : ones(y.shape(), y.dtype())})[0];
}

// Softmax

TEST(Values, cross_entropy_of_large_equal_logits) {
  const Tensor logits = leaf(tensor({{2e8, 2e8}})), loss = cross_entropy(logits, tensor({0}, i64));
  EXPECT_TRUE(holds(loss, {0.6931472}));
  EXPECT_TRUE(holds(grad({loss}, {logits})[0], {-.5, .5}));
}

TEST(Values, softmax_with_entries_of_minus_infinity) {
  const Tensor x = tensor({-inf, 0, -inf, 1}, f64);
  EXPECT_TRUE(holds(softmax(x, 0), {0, .26894142, 0, .73105858}));
  EXPECT_TRUE(holds(gradient([](const Tensor& t) { return softmax(t, 0); }, x, tensor({1, 2, 3, 4}, f64)), {0, -.39322387, 0, .39322387}));
  EXPECT_TRUE(holds(log_softmax(x, 0), {-inf, -1.31326169, -inf, -.31326169}));
  EXPECT_TRUE(holds(gradient([](const Tensor& t) { return log_softmax(t, 0); }, x, tensor({0, 2, 0, 4}, f64)), {0, .38635147, 0, -.38635147}));

  Tensor late = full({1, 1025}, -inf);
  late.mutable_data<float>()[1024] = 0;
  std::vector<double> expected(1025, 0.0);
  expected.back() = 1;
  EXPECT_TRUE(holds(softmax(late, 1), expected, 0));

  const Tensor rows = tensor({{-inf, -inf}, {0, 1}}, f64);
  EXPECT_TRUE(holds(softmax(rows, 1), {nan_value, nan_value, .26894142, .73105858}));
  EXPECT_TRUE(holds(detail::softmax_or_zero(rows), {0, 0, .26894142, .73105858}));
  EXPECT_TRUE(holds(gradient([](const Tensor& t) { return detail::softmax_or_zero(t); }, rows, tensor({{1, 2}, {0, 1}}, f64)),
                    {0, 0, -.19661193, .19661193}));
}

TEST(Values, softmax_along_every_spelling_of_a_dim) {
  const Tensor x = tensor({{1, 2, 3}, {1, 4, 1}}, f64), g = tensor({{1, 0, 0}, {0, 2, 0}}, f64);
  const std::vector<double> y{.5, .11920292, .88079708, .5, .88079708, .11920292}, dx{.25, -.20998717, 0, -.25, .20998717, 0};
  for (Index dim : {0, -2}) {
    EXPECT_TRUE(holds(softmax(x, dim), y));
    EXPECT_TRUE(holds(gradient([dim](const Tensor& t) { return softmax(t, dim); }, x, g), dx));
  }
  for (Index dim : {1, -3}) {
    const Tensor wide = reshape(x, {1, 2, 3, 1});
    EXPECT_TRUE(holds(softmax(wide, dim), y));
    EXPECT_TRUE(holds(gradient([dim](const Tensor& t) { return softmax(t, dim); }, wide, reshape(g, {1, 2, 3, 1})), dx));
  }
  for (Index dim : {0, -1}) {
    EXPECT_TRUE(holds(softmax(tensor(3, f64), dim), {1}));
    EXPECT_TRUE(holds(log_softmax(tensor(3, f64), dim), {0}));
  }
  for (Index dim : {2, -3})
    EXPECT_THAT(thrown<ShapeError>([&] { (void)softmax(x, dim); }), AllOf(HasSubstr(std::to_string(dim)), HasSubstr("[-2, 1]")));
}

TEST(Values, reductions_of_cross_entropy) {
  const Tensor x = tensor({{0, 1}, {2, 0}}, f64), targets = tensor({0, 1}, i64);
  const auto loss = [&](Reduction r) { return [&, r](const Tensor& t) { return cross_entropy(t, targets, {.reduction = r}); }; };
  EXPECT_TRUE(holds(loss(Reduction::mean)(x), {1.72009485}));
  EXPECT_TRUE(holds(gradient(loss(Reduction::mean), x), {-.36552929, .36552929, .44039854, -.44039854}));
  EXPECT_TRUE(holds(loss(Reduction::sum)(x), {3.44018970}));
  EXPECT_TRUE(holds(gradient(loss(Reduction::sum), x), {-.73105858, .73105858, .88079708, -.88079708}));
  EXPECT_TRUE(holds(loss(Reduction::none)(x), {1.31326169, 2.12692801}));
  EXPECT_TRUE(holds(gradient(loss(Reduction::none), x, tensor({1, 10}, f64)), {-.73105858, .73105858, 8.80797078, -8.80797078}));
}

TEST(Values, cross_entropy_with_ignored_targets) {
  const Tensor x = tensor({{1, 2, 3}, {0, 0, 0}}, f64);
  const auto loss = [](const Tensor& targets, CrossEntropyOptions options = {}) {
    return [=](const Tensor& t) { return cross_entropy(t, targets, options); };
  };
  const auto one = loss(tensor({-100, 1}, i64));
  EXPECT_TRUE(holds(one(x), {1.09861229}));
  EXPECT_TRUE(holds(gradient(one, x), {0, 0, 0, 1 / 3., -2 / 3., 1 / 3.}));
  const Tensor both = tensor({-100, -100}, i64);
  EXPECT_TRUE(holds(loss(both)(x), {nan_value}));
  EXPECT_TRUE(holds(gradient(loss(both), x), {0, 0, 0, 0, 0, 0}, 0));
  EXPECT_TRUE(holds(loss(both, {.reduction = Reduction::sum})(x), {0}, 0));
  EXPECT_FALSE(std::signbit(loss(both, {.reduction = Reduction::sum})(x).item<double>()));
  EXPECT_TRUE(holds(gradient(loss(both, {.reduction = Reduction::sum}), x), {0, 0, 0, 0, 0, 0}, 0));
  EXPECT_TRUE(holds(loss(tensor({0, 2}, i64), {.reduction = Reduction::none, .ignore_index = 2})(x), {2.40760596, 0}));
  EXPECT_THAT(thrown<IndexError>([&] { (void)loss(tensor({0, 3}, i64))(x); }), AllOf(HasSubstr("cross_entropy"), HasSubstr("3")));
  EXPECT_THROW((void)loss(tensor({0, -1}, i64))(x), IndexError);
}

/// Whatever stands in a row that does not count, smoothing or not: the loss and its derivatives are those of the other rows alone.
TEST(Values, cross_entropy_beside_ignored_rows_of_anything) {
  manual_seed(6);
  const Tensor others = randn({2, 4}, f64) * 3, targets = tensor({-100, 2, -100, 0, -100}, i64);
  const Tensor all_rows =
      stack({full({4}, -inf, f64), others[0], tensor({nan_value, 1, nan_value, 2}, f64), others[1], tensor({1e300, -1e300, 0, inf}, f64)});
  for (const DType dtype : {f32, f64})
    for (const double smoothing : {0., .3, 1.})
      for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
        const CrossEntropyOptions options{.reduction = reduction, .label_smoothing = smoothing};
        const auto derivatives = [&](const Tensor& logits, const Tensor& which) {
          const Tensor x = leaf(logits.to(dtype).detach().clone()), loss = cross_entropy(x, which, options);
          const Tensor plain = grad({sum(loss)}, {x}, {}, {.retain_graph = true})[0];
          const Tensor twin = grad({sum(loss)}, {x}, {}, {.create_graph = true})[0];
          return std::vector<Tensor>{sum(loss), plain, twin.detach(), grad({twin}, {x}, {expand(arange(4, dtype), x.shape())})[0]};
        };
        const std::vector<Tensor> got = derivatives(all_rows, targets), want = derivatives(others, tensor({2, 0}, i64));
        EXPECT_TRUE(close(got[0], want[0], 1e-6));
        for (std::size_t i = 1; i < 4; ++i) {
          EXPECT_TRUE(close(stack({got[i][1], got[i][3]}), want[i], 1e-6)) << i;
          for (Index row : {0, 2, 4})
            EXPECT_TRUE(holds(got[i][row], {0, 0, 0, 0}, 0)) << "derivative " << i << " of row " << row << ", " << smoothing;
        }
      }
}

TEST(Values, cross_entropy_with_logits_of_minus_infinity) {
  const Tensor x = tensor({{0, -inf, 1}}, f64);
  const AnomalyMode guard;  // no NaN on the way either
  const auto loss = [](const Tensor& t) { return cross_entropy(t, tensor({2}, i64)); };
  EXPECT_TRUE(holds(loss(x), {.31326169}));
  EXPECT_TRUE(holds(gradient(loss, x), {.26894142, 0, -.26894142}));
  EXPECT_TRUE(holds(cross_entropy(x, tensor({1}, i64)), {inf}));
}

// Zeros and ties

TEST(Values, powers_at_zero) {
  const auto power = [](double exponent) { return [exponent](const Tensor& x) { return pow(x, exponent); }; };
  const Tensor zero = tensor(0, f64), minus_two = tensor(-2, f64);
  EXPECT_TRUE(holds(gradient(power(2), zero), {0}));
  EXPECT_TRUE(holds(gradient(power(1), zero), {1}));
  EXPECT_TRUE(holds(pow(zero, 0), {1}));
  EXPECT_TRUE(holds(gradient(power(0), zero), {0}));
  EXPECT_TRUE(holds(gradient(power(0.5), zero), {inf}));
  EXPECT_TRUE(holds(gradient(power(3), minus_two), {12}));
  EXPECT_TRUE(holds(gradient(power(2), minus_two), {-4}));
  EXPECT_TRUE(holds(gradient([&](const Tensor& exponent) { return pow(zero, exponent); }, tensor(2, f64)), {0}));
  EXPECT_TRUE(holds(gradient([&](const Tensor& exponent) { return pow(zero, exponent); }, tensor(0, f64)), {0}));
  // Second derivatives there, with both operands asking.
  const Tensor x = leaf(tensor({0, 0, 2}, f64)), e = leaf(tensor({2, 3, 2}, f64));
  const std::vector<Tensor> d = grad({sum(pow(x, e))}, {x, e}, {}, {.create_graph = true});
  EXPECT_TRUE(holds(d[0], {0, 0, 4}));
  EXPECT_TRUE(holds(d[1], {0, 0, 4 * std::log(2)}));
  const std::vector<Tensor> dd = grad({sum(d[0] + d[1])}, {x, e});
  EXPECT_TRUE(holds(dd[0], {2, 0, 2 + 2 + 4 * std::log(2)}));
  EXPECT_TRUE(holds(dd[1], {0, 0, 2 + 4 * std::log(2) + 4 * std::log(2) * std::log(2)}));
}

TEST(Values, roots_and_norms_at_zero) {
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return sqrt(x); }, tensor({0, 4}, f64)), {inf, .25}));
  const auto length = [](const Tensor& x) { return norm(x); };
  EXPECT_TRUE(holds(length(zeros({2}, f64)), {0}));
  EXPECT_TRUE(holds(gradient(length, zeros({2}, f64)), {0, 0}, 0));
  EXPECT_TRUE(holds(gradient(length, tensor({3, 4}, f64)), {.6, .8}));
  EXPECT_TRUE(holds(norm(tensor({{0, 0}, {3, 4}}, f64), 1), {0, 5}));
  // Squares would leave the range.
  EXPECT_TRUE(holds(norm(tensor({3e200, 4e200}, f64)) / 1e200, {5}));
  EXPECT_TRUE(holds(norm(tensor({3e-30, 4e-30})) * 1e30, {5}, 1e-5));
  EXPECT_TRUE(holds(gradient(length, tensor({3e-200, 4e-200}, f64)), {.6, .8}));
  EXPECT_TRUE(holds(norm(tensor({1, inf}, f64)), {inf}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return abs(x); }, tensor({-2, 0, 2}, f64)), {-1, 0, 1}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return relu(x); }, tensor({-2, 0, 2}, f64)), {0, 0, 1}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return clamp(x, -1, 1); }, tensor({-2, -1, 0, 1, 2}, f64)), {0, 1, 1, 1, 0}));
}

TEST(Values, ties) {
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return max(x); }, tensor({1, 3, 3}, f64), tensor(6, f64)), {0, 6, 0}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return min(x, 1); }, tensor({{1, 1}, {2, 1}}, f64), tensor({6, 7}, f64)), {6, 0, 0, 7}));
  const Tensor a = leaf(tensor({1, 5}, f64)), b = leaf(tensor({1, 2}, f64));
  const std::vector<Tensor> d = grad({maximum(a, b)}, {a, b}, {tensor({2, 2}, f64)});
  EXPECT_TRUE(holds(d[0], {1, 2}));
  EXPECT_TRUE(holds(d[1], {1, 0}));
  EXPECT_TRUE(holds(argmax(tensor({1, 3, 3}, f64)), {1}));
}

TEST(Values, not_a_number) {
  const Tensor x = tensor({1, nan_value, 3}, f64);
  EXPECT_TRUE(holds(max(x), {nan_value}));
  EXPECT_TRUE(holds(min(x), {nan_value}));
  EXPECT_TRUE(holds(argmax(x), {1}));
  EXPECT_TRUE(holds(maximum(x, 2), {2, nan_value, 3}));
  EXPECT_TRUE(holds(minimum(2 * ones({3}, f64), x), {1, nan_value, 2}));
  EXPECT_TRUE(holds(clamp(x, 0, 2), {1, nan_value, 2}));
  EXPECT_TRUE(holds(relu(x), {1, nan_value, 3}));
  EXPECT_TRUE(holds(isnan(x), {0, 1, 0}));
  EXPECT_TRUE(holds(isfinite(tensor({1, nan_value, -inf}, f64)), {1, 0, 0}));
  EXPECT_TRUE(holds(eq(x, x), {1, 0, 1}));
  EXPECT_TRUE(holds(where(isnan(x), 0, x), {1, 0, 3}));
  EXPECT_TRUE(holds(gradient([](const Tensor& t) { return where(isnan(t), 0, t); }, x), {1, 0, 1}));
}

TEST(Values, allclose) {
  // |a - b| <= atol + rtol |b|: b is what is expected. All numbers here are exact.
  const Tensor b = tensor({4, -8}, f64);
  EXPECT_TRUE(allclose(b, b, 0, 0));
  EXPECT_TRUE(allclose(tensor({4.5, -8.5}, f64), b, 0, 0.5));
  EXPECT_FALSE(allclose(tensor({4.5, -8.75}, f64), b, 0, 0.5));
  EXPECT_TRUE(allclose(tensor({5, -10}, f64), b, 0.25, 0));
  EXPECT_FALSE(allclose(tensor({5.5, -10}, f64), b, 0.25, 0));
  EXPECT_TRUE(allclose(tensor({5.5, -10.5}, f64), b, 0.25, 0.5));
  EXPECT_TRUE(allclose(tensor(1.0, f64), tensor(1.25, f64), 0.2, 0));
  EXPECT_FALSE(allclose(tensor(1.25, f64), tensor(1.0, f64), 0.2, 0)) << "relative to the second";
  EXPECT_TRUE(allclose(b + 3e-5, b) && allclose(tensor(1e-8, f64), zeros({}, f64)));
  EXPECT_FALSE(allclose(b + 2e-4, b) || allclose(tensor(2e-8, f64), zeros({}, f64)));

  const Tensor x = tensor({1, nan_value}, f64), infinite = tensor({inf, -inf}, f64);
  EXPECT_FALSE(allclose(x, x) || allclose(x, b, inf, inf) || allclose(b, x, inf, inf));
  EXPECT_TRUE(allclose(infinite, infinite) && allclose(infinite, infinite, 0, 0));
  EXPECT_FALSE(allclose(infinite, -infinite) || allclose(infinite, b) || allclose(b, infinite));
  EXPECT_TRUE(allclose(ones({2, 3}), ones({3})) && allclose(ones({3, 1}), ones({2, 1, 4})));
  EXPECT_TRUE(allclose(ones({0, 3}), zeros({3}))) << "nothing differs";
  EXPECT_FALSE(allclose(ones({2, 3}), tensor({1, 2, 1})));

  EXPECT_TRUE(allclose(tensor({100000, 7}, i64), tensor({100001, 7}, i64)));
  EXPECT_FALSE(allclose(tensor({1000, 7}, i64), tensor({1001, 7}, i64)));
  constexpr std::int64_t large = std::int64_t{1} << 53, most = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(allclose(from_vector<Index>({large + 1}, 1), from_vector<Index>({large}, 1), 0, 1));
  EXPECT_FALSE(allclose(from_vector<Index>({large + 1}, 1), from_vector<Index>({large}, 1), 0, 0));
  EXPECT_FALSE(allclose(from_vector<Index>({most}, 1), from_vector<Index>({-most - 1}, 1), 0, 10));
  EXPECT_TRUE(allclose(eq(b, 4), tensor({1, 0}, boolean)));
  EXPECT_FALSE(allclose(eq(b, 4), eq(b, -8)));

  const std::int64_t nodes = detail::memory_counters().live_nodes;
  const AnomalyMode guard;
  EXPECT_FALSE(allclose(leaf(infinite.clone()), leaf(b.clone())));
  EXPECT_LE(detail::memory_counters().live_nodes, nodes) << "recorded";
}

TEST(Values, logsumexp_at_the_ends) {
  EXPECT_TRUE(holds(logsumexp(tensor({-inf, -inf}, f64)), {-inf}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return logsumexp(x); }, tensor({-inf, -inf}, f64)), {0, 0}, 0));
  EXPECT_TRUE(holds(logsumexp(tensor({1000, 1000}, f64)), {1000.69314718}));
  EXPECT_TRUE(holds(logsumexp(tensor({inf, 1}, f64)), {inf}));
  EXPECT_TRUE(holds(logsumexp(zeros({0}, f64)), {-inf}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return logsumexp(x, 1); }, tensor({{-inf, 0, 1}}, f64)), {0, .26894142, .73105858}));
}

// Nothing

TEST(Values, reductions_over_nothing) {
  const Tensor nothing = zeros({0}, f64), rows = zeros({0, 3}, f64);
  EXPECT_TRUE(holds(sum(nothing), {0}, 0));
  EXPECT_EQ(gradient([](const Tensor& x) { return sum(x); }, nothing).shape(), Dims{0});
  EXPECT_TRUE(holds(mean(nothing), {nan_value}));
  EXPECT_TRUE(holds(var(nothing), {nan_value}));
  EXPECT_TRUE(holds(var(tensor({1}, f64)), {nan_value}));
  EXPECT_THAT(thrown<ShapeError>([&] { (void)max(nothing); }), HasSubstr("max"));
  EXPECT_THROW((void)argmax(nothing), ShapeError);
  EXPECT_TRUE(holds(sum(rows, 0), {0, 0, 0}, 0));
  EXPECT_EQ(sum(rows, 1).shape(), Dims{0});
  EXPECT_TRUE(holds(mean(rows, 0), {nan_value, nan_value, nan_value}));
  EXPECT_THROW((void)max(rows, 0), ShapeError);
  EXPECT_THROW((void)min(rows, 0), ShapeError);
  EXPECT_EQ(max(rows, 1).shape(), Dims{0});
  EXPECT_EQ(max(rows, 1, true).shape(), (Dims{0, 1}));
  EXPECT_TRUE(holds(any(zeros({0}, boolean)), {0}));
  EXPECT_TRUE(holds(all(zeros({0}, boolean)), {1}));
}

TEST(Values, gradients_keep_their_dtype_and_digits) {
  const Tensor d = gradient([](const Tensor& x) { return x * x; }, tensor(1 + 1e-12, f64));
  EXPECT_EQ(d.item<double>(), 2 * (1 + 1e-12));
  const Tensor x = tensor({1, 2, 3});
  for (const Tensor& g : {gradient([](const Tensor& t) { return t / 3; }, x), gradient([](const Tensor& t) { return mean(t); }, x),
                          gradient([](const Tensor& t) { return softmax(t, 0); }, x), gradient([](const Tensor& t) { return 1.0 / t; }, x)})
    EXPECT_EQ(g.dtype(), f32);
}

TEST(Values, numbers_beside_f32_are_rounded_to_it) {
  const Tensor x = leaf(tensor({-2, 3}));
  EXPECT_TRUE(same(x * 1e300, tensor({-inf, inf})));
  EXPECT_TRUE(same(x * 1e-300, tensor({0, 0})));
  EXPECT_TRUE(same(1e300 - x, tensor({inf, inf})));
  EXPECT_TRUE(same(x / 1e300, tensor({0, 0})));
  EXPECT_TRUE(same(maximum(x, -1e300), x.detach()));
  EXPECT_TRUE(same(clamp(x, -1e300, 1e300), x.detach()));
  EXPECT_TRUE(same(grad({sum(clamp(x, -1e300, 1e300))}, {x})[0], tensor({1, 1})));
  EXPECT_TRUE(same(tensor({1, 2}, f64) * 1e300, tensor({1e300, 2e300}, f64)));
}

// Products

TEST(Values, products_over_nothing_are_zeros) {
  full({4, 3, 2}, nan_value, f64);  // its memory is handed out again
  const Tensor a = leaf(zeros({3, 0}, f64)), b = leaf(zeros({0, 2}, f64));
  const Tensor y = matmul(a, b);
  EXPECT_TRUE(holds(y, {0, 0, 0, 0, 0, 0}, 0));
  const std::vector<Tensor> d = grad({y}, {a, b}, {ones({3, 2}, f64)});
  EXPECT_EQ(d[0].shape(), (Dims{3, 0}));
  EXPECT_EQ(d[1].shape(), (Dims{0, 2}));
  EXPECT_TRUE(holds(matmul(zeros({4, 3, 0}, f64), zeros({4, 0, 2}, f64)), std::vector<double>(24, 0.0), 0));
  EXPECT_TRUE(holds(matmul(zeros({3, 0}, f64), zeros({0}, f64)), {0, 0, 0}, 0));
  EXPECT_TRUE(holds(linear(zeros({2, 0}, f64), zeros({2, 0}, f64), tensor({7, 8}, f64)), {7, 8, 7, 8}, 0));
}

TEST(Values, matrix_times_vector) {
  const auto expect = [](const Tensor& m, const Tensor& v, std::vector<double> dm, std::vector<double> dv) {
    const Tensor a = leaf(m.clone()), b = leaf(v.clone());
    const std::vector<Tensor> d = grad({matmul(a, b)}, {a, b}, {tensor({1, 10}, f64)});
    EXPECT_TRUE(holds(d[0], dm));
    EXPECT_TRUE(holds(d[1], dv));
  };
  expect(tensor({{1, 2}, {3, 4}}, f64), tensor({5, 6}, f64), {5, 6, 50, 60}, {31, 42});
  expect(tensor({{1, 2, 3}, {4, 5, 6}}, f64), tensor({1, 0, -1}, f64), {1, 0, -1, 10, 0, -10}, {41, 52, 63});
}

TEST(Values, nothing_is_skipped_for_being_zero) {
  for (DType dtype : {f32, f64}) {
    EXPECT_TRUE(holds(matmul(tensor({{0, 1}}, dtype), tensor({{nan_value}, {1}}, dtype)), {nan_value}));
    EXPECT_TRUE(holds(matmul(tensor({{0}}, dtype), tensor({{inf}}, dtype)), {nan_value}));
    EXPECT_TRUE(holds(matmul(tensor({{0, 1}}, dtype), tensor({{inf, 0}, {1, 2}}, dtype)), {nan_value, 2}));
  }
  Tensor t = tensor({{1, 2}, {3, 4}}, f64);
  t = matmul(t, t);
  EXPECT_TRUE(holds(t, {7, 10, 15, 22}));
}

// Layer norm

TEST(Values, layer_norm_of_numbers_that_cancel) {
  EXPECT_TRUE(holds(layer_norm(tensor({70000, 70001, 70003, 70004}), 4), {-1.2649085, -.6324543, .6324543, 1.2649085}, 1e-5));
  EXPECT_TRUE(holds(layer_norm(full({192}, 777.25), 192), std::vector<double>(192, 0.0), 0));
  const Tensor x = leaf(tensor({5, 5, 5}, f64)), gain = leaf(tensor({1, 2, 3}, f64)), shift = leaf(tensor({.5, .25, 0}, f64));
  const Tensor y = layer_norm(x, 3, gain, shift);
  EXPECT_TRUE(holds(y, {.5, .25, 0}));
  const std::vector<Tensor> d = grad({y}, {x, gain, shift}, {tensor({1, 2, 3}, f64)});
  EXPECT_TRUE(holds(d[0], {-1159.50180873, -210.81851068, 1370.32031941}));
  EXPECT_TRUE(holds(d[1], {0, 0, 0}));
  EXPECT_TRUE(holds(d[2], {1, 2, 3}));
}

TEST(Values, layer_norm_of_small_variances) {
  EXPECT_TRUE(holds(layer_norm(tensor({-.001, .001}, f64), 2), {-.30151134, .30151134}));
  for (DType dtype : {f64, f32})
    EXPECT_TRUE(holds(layer_norm(tensor({-5e-4, 5e-4, -5e-4, 5e-4}, dtype), 4, {}, {}, 1e-12), {-.999998, .999998, -.999998, .999998},
                      dtype == f64 ? 1e-7 : 1e-5));
}

// Look-up and noise

TEST(Values, embedding_of_bad_and_repeated_ids) {
  for (DType dtype : {f32, f64}) {
    const Tensor table = leaf(zeros({4, 2}, dtype));
    for (Index id : {Index{4}, Index{-1}, Index{1} << 31, std::numeric_limits<Index>::min()})
      EXPECT_THAT(thrown<IndexError>([&] {
                    (void)embedding(tensor({0, id}, i64), table);
                  }),
                  AllOf(HasSubstr("embedding"), HasSubstr(std::to_string(id)), HasSubstr("4")));
    const Tensor rows = embedding(tensor({1, 1, 2, 1}, i64), table);
    EXPECT_TRUE(holds(grad({rows}, {table}, {tensor({{1, 2}, {10, 20}, {5, 6}, {100, 200}}, dtype)})[0], {0, 0, 111, 222, 5, 6, 0, 0}));
    const Tensor none = embedding(zeros({0}, i64), table);
    EXPECT_EQ(none.shape(), (Dims{0, 2}));
    EXPECT_TRUE(holds(grad({none}, {table}, {zeros({0, 2}, dtype)})[0], std::vector<double>(8, 0.0), 0));
    EXPECT_EQ(embedding(tensor(3, i64), table).shape(), Dims{2});
  }
}

TEST(Values, dropout_of_everything_and_of_nothing) {
  const Tensor x = leaf(tensor({1, -2, 3}, f64));
  const Tensor y = dropout(x, 1, true);
  EXPECT_TRUE(holds(y, {0, 0, 0}, 0));
  EXPECT_TRUE(holds(grad({y}, {x}, {ones({3}, f64)})[0], {0, 0, 0}, 0));
  for (double p : {-.1, 1.1, nan_value}) EXPECT_THAT(thrown<Error>([&] { (void)dropout(x, p, true); }), HasSubstr("dropout"));
  const RngState before = rng_state();
  EXPECT_TRUE(same(dropout(x, 0, true), x));
  EXPECT_TRUE(same(dropout(x, .5, false), x));
  EXPECT_EQ(rng_state(), before) << "draws no random numbers";
  (void)dropout(x, .5, true);
  EXPECT_FALSE(rng_state() == before);
}

TEST(Values, dropout_keeps_the_mean_and_scales_the_gradient_alike) {
  manual_seed(3);
  const Tensor x = leaf(ones({100'000}, f64)), y = dropout(x, .25, true);
  EXPECT_NEAR(mean(y).item<double>(), 1, .01);
  EXPECT_NEAR(mean(eq(y, 0).to(f64)).item<double>(), .25, .01);
  EXPECT_TRUE(same(grad({y}, {x}, {ones({100'000}, f64)})[0], y.detach()));
}

TEST(Values, dropout_drops_infinities_too) {
  for (const DType dtype : {f32, f64}) {
    for (const double bad : {inf, -inf, nan_value}) {
      manual_seed(5);
      const Tensor kept = ne(dropout(ones({64}, dtype), .5, true), 0);
      ASSERT_TRUE(any(kept).item<bool>() && any(!kept).item<bool>());
      const auto drop = [](double p) {
        return [p](const Tensor& t) {
          manual_seed(5);
          return dropout(t, p, true);
        };
      };
      const Tensor x = full({64}, bad, dtype), expected = where(kept, x, 0);
      EXPECT_TRUE(same(drop(.5)(x), expected));
      EXPECT_TRUE(same(gradient(drop(.5), ones({64}, dtype), x), expected)) << "an upstream gradient";
      EXPECT_TRUE(same(drop(1)(x), zeros({64}, dtype)));
      EXPECT_TRUE(same(gradient(drop(1), x, x), zeros({64}, dtype)));
      // The mask of the second order is that of the first.
      const Tensor at = leaf(x.clone()), up = leaf(x.clone()), y = drop(.5)(at * at);
      const Tensor d = grad({y}, {at}, {up}, {.create_graph = true})[0];
      const std::vector<Tensor> dd = grad({d}, {at, up}, {ones({64}, dtype)});
      EXPECT_TRUE(holds(where(kept, 0, dd[0]), std::vector<double>(64, 0.0), 0));
      EXPECT_TRUE(all(kept | eq(drop(.5)(at.detach()), 0)).item<bool>());
    }
    EXPECT_TRUE(same(dropout(zeros({2000}, dtype), .25, true), zeros({2000}, dtype)));
  }
}

/// Where a rule gives 0 because another operand won, an infinite gradient goes nowhere.
TEST(Values, infinite_gradients_go_only_where_they_belong) {
  const Tensor a = tensor({1, 2, 3}, f64), b = tensor({2, 2, 2}, f64), up = full({3}, inf, f64);
  const auto of_both = [&](auto f) {
    const Tensor x = leaf(a.clone()), y = leaf(b.clone());
    return cat(grad({f(x, y)}, {x, y}, {up}));
  };
  EXPECT_TRUE(holds(of_both([](const Tensor& x, const Tensor& y) { return maximum(x, y); }), {0, inf, inf, inf, inf, 0}));
  EXPECT_TRUE(holds(of_both([](const Tensor& x, const Tensor& y) { return minimum(x, y); }), {inf, inf, 0, 0, inf, inf}));
  EXPECT_TRUE(holds(of_both([](const Tensor& x, const Tensor& y) { return where(gt(x, y), x, y); }), {0, 0, inf, inf, inf, 0}));
  const Tensor c = tensor({-1, 0, 1}, f64);
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return abs(x); }, c, up), {-inf, 0, inf}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return relu(x); }, c, up), {0, 0, inf}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return clamp(x, -.5, .5); }, c, up), {0, inf, 0}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return max(x, 0, true); }, c, full({1}, inf, f64)), {0, 0, inf}));
  const Tensor square = tensor({{1, 2}, {3, 4}}, f64);
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return tril(x); }, square, full({2, 2}, inf, f64)), {inf, 0, inf, inf}));
  EXPECT_TRUE(holds(gradient([](const Tensor& x) { return masked_fill(x, gt(x, 2), 0); }, square, full({2, 2}, inf, f64)), {inf, inf, 0, 0}));
}

// Shapes

TEST(Values, reshape_with_an_unknown_size) {
  const auto error = [](const Dims& from, const Dims& to) { return thrown<ShapeError>([&] { (void)reshape(zeros(from), to); }); };
  EXPECT_NE(error({2, 0, 5}, {2, 0, -1}), "");
  EXPECT_NE(error({0, 4}, {-1, 0}), "");
  EXPECT_EQ(reshape(zeros({0}), {-1, 3}).shape(), (Dims{0, 3}));
  EXPECT_THAT(error({25}, {-1, 4, 2}), AllOf(HasSubstr("reshape"), HasSubstr("25"), HasSubstr("(-1, 4, 2)")));
  EXPECT_THAT(error({6}, {-1, -1}), AllOf(HasSubstr("6"), HasSubstr("(-1, -1)")));
  EXPECT_THAT(error({6}, {4, 2}), AllOf(HasSubstr("6"), HasSubstr("(4, 2)")));
  EXPECT_THAT(error({6}, {-2, 3}), AllOf(HasSubstr("6"), HasSubstr("(-2, 3)")));
}

TEST(Values, pieces_up_to_the_ends_of_an_index) {
  constexpr Index most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min();
  const Tensor x = tensor({1, 2, 3});
  EXPECT_EQ(chunk(x, most).size(), 3u);
  EXPECT_EQ(split(x, most).size(), 1u);
  EXPECT_TRUE(same(slice(x, 0, least, most), x));
  EXPECT_TRUE(holds(slice(x, 0, 0, most, most), {1}));
  EXPECT_EQ(slice(x, 0, most, least).numel(), 0);
  EXPECT_THROW((void)select(x, 0, least), IndexError);
  EXPECT_THROW((void)select(x, most, 0), ShapeError);
  EXPECT_TRUE(same(tril(tensor({{1, 2}, {3, 4}}), most), tensor({{1, 2}, {3, 4}})));
  EXPECT_TRUE(same(triu(tensor({{1, 2}, {3, 4}}), most), zeros({2, 2})));
}

}  // namespace
}  // namespace heed::test
