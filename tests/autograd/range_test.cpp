#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "op_test.h"

// Over the whole range of exponents: what fits the dtype comes out right, what does not is infinite, and nothing is a plausible number that is wrong.
// The rows of the op table with inputs scaled by powers of two, to derivatives of second order.

namespace heed::test {
namespace {

class OpRange : public OpTest {};
class OpGrowth : public OpTest {};

/// A result, the gradients of the inputs, the same made such that they can be differentiated again, and the gradients of a sum of those. Undefined
/// ones are left out.
struct Orders {
  Tensors value, first, again, second;
};

Tensors scaled(const Tensors& tensors, int exponent) {
  const NoGrad off;
  Tensors out;
  for (const Tensor& t : tensors) {
    std::vector<double> values = t.to_vector<double>();
    for (double& v : values) v = std::ldexp(v, exponent);
    out.push_back(from_vector(values, t.shape()).to(t.dtype()));
  }
  return out;
}

Tensors defined(const Tensors& tensors) {
  Tensors out;
  for (const Tensor& t : tensors)
    if (t.defined()) out.push_back(t);
  return out;
}

/// `up` scales what the outputs are weighed with for the gradients.
Orders orders_of(const OpRow& row, Tensors inputs, int up = 0) {
  inputs = copies(inputs);
  require_grads(inputs);
  Orders o;
  o.value = row.function(inputs);
  o.first = defined(gradients(o.value, inputs, scaled(cotangents(o.value), up), {.retain_graph = true}));
  o.again = defined(gradients(o.value, inputs, scaled(cotangents(o.value), up), {.create_graph = true}));
  const Tensors roots = differentiable(o.again);
  o.second = defined(gradients(roots, inputs, cotangents(roots, 3)));
  return o;
}

/// Where an overflow inside an op may show, as NaN or infinity.
enum class Lost { nowhere, in_gradients_made_of_ops, anywhere };

struct Exception {
  const char* why;
  bool first_order;  ///< whether gradients are compared for inputs above 1
  Lost lost;
};

const std::map<std::string, Exception> exceptions{
    {"matmul", {"products and their sums are f32", true, Lost::anywhere}},
    {"linear", {"products and their sums are f32", true, Lost::anywhere}},
    {"scaled_dot_product_attention", {"scores are f32; the gradient of a weight near 1 is rounding, times a large key", false, Lost::anywhere}},
    {"layer_norm", {"the kernel takes the spread of x into the product of gradient and weight, ops do not", true, Lost::in_gradients_made_of_ops}},
};

/// For small inputs all that these have are differences between equal shares, which f32 rounds to something else: 0.
const std::set<std::pair<std::string, std::string>> only_rounding{{"detail::softmax_or_zero", "row_of_nothing"}, {"cross_entropy", "all_smooth"}};

/// How a result is compared.
struct Bounds {
  double roundings;         ///< of the largest element that fits, and 64 of the smallest number there is
  bool may_be_lost;         ///< whether NaN and infinities are as good
  double top = 0x1.ffep-1;  ///< the part of the range from which on infinity is as good, as it is right above it
};

/// Each element right where `expected`, in more range and precision, fits the dtype, and infinite where it does not.
testing::AssertionResult fits(const Tensor& actual, const std::vector<double>& expected, const Bounds& bounds) {
  const bool single = actual.dtype() == f32;
  const double largest = single ? static_cast<double>(std::numeric_limits<float>::max()) : std::numeric_limits<double>::max();
  const double smallest = single ? 0x1p-149 : 0x1p-1074;
  double size = 0;
  for (double e : expected)
    if (std::abs(e) <= largest) size = std::max(size, std::abs(e));
  const std::vector<double> got = actual.to_vector<double>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double e = expected[i], a = got[i];
    const bool close = std::abs(a - e) <= bounds.roundings * epsilon(actual.dtype()) * size + 64 * smallest;
    const bool beyond = std::isinf(a) && std::abs(e) >= bounds.top * largest && (bounds.top < 0.5 || std::signbit(a) == std::signbit(e));
    if (!close && !beyond && !(std::isnan(a) && std::isnan(e)) && !(bounds.may_be_lost && !std::isfinite(a)))
      return testing::AssertionFailure() << "element " << i << " of shape " << actual.shape() << " is " << a << ", expected " << e << " beside "
                                         << size;
  }
  return testing::AssertionSuccess();
}

/// All but two, whose second derivatives leave the range of f64 as well and whose gradients, summed over a broadcast operand, overflow term by term:
/// TailsOfTwo has them, against long double.
std::vector<std::string> names_in_range() {
  std::vector<std::string> names = ops::op_names();
  std::erase_if(names, [](const std::string& name) { return name == "operator/" || name == "pow"; });
  return names;
}

void expect_fit(const Tensors& actual, const Tensors& expected, const Bounds& bounds, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!detail::is_float(actual[i].dtype())) continue;
    EXPECT_TRUE(fits(actual[i], expected[i].to_vector<double>(), bounds)) << what << " " << i;
  }
}

void expect_fit(const OpRow& row, const Orders& actual, const Orders& expected, bool large) {
  const auto found = exceptions.find(row.name);
  const Exception rule = found == exceptions.end() ? Exception{"", true, Lost::nowhere} : found->second;
  const double roundings = 4 * row.f32_bound;
  const bool anywhere = rule.lost == Lost::anywhere;
  expect_fit(actual.value, expected.value, {roundings, anywhere}, "output");
  if (large ? !rule.first_order : only_rounding.contains({row.name, row.variant})) return;
  expect_fit(actual.first, expected.first, {roundings, anywhere}, "gradient");
  expect_fit(actual.again, expected.again, {roundings, rule.lost != Lost::nowhere}, "gradient made of ops");
  // These are made of ops, whose results in between may be somewhat larger.
  expect_fit(actual.second, expected.second, {4 * roundings, rule.lost != Lost::nowhere, 0x1p-6}, "second derivative");
}

TEST_P(OpRange, single_precision_against_double) {
  for_each_row([&](const OpRow& row) {
    const auto compare = [&](const Tensors& inputs, int up, bool large) {
      Tensors wide;
      for (const Tensor& x : inputs) wide.push_back(x.to(f64));
      expect_fit(row, orders_of(row, inputs, up), orders_of(row, wide, up), large);
    };
    const Tensors inputs = ops::make_inputs(row, f32);
    for (int exponent : {-126, -120, -100, -80, -66, -50, -30, 30, 50, 62, 66, 80, 100, 120, 125}) {
      SCOPED_TRACE(testing::Message() << "inputs times 2^" << exponent);
      compare(scaled(inputs, exponent), 0, exponent > 0);
    }
    for (int up : {-130, -100, -60, 60, 100, 120}) {
      SCOPED_TRACE(testing::Message() << "gradients times 2^" << up);
      compare(inputs, up, false);
    }
  });
}

/// Powers of the scale that an op's value, gradient and second derivative grow with, far from 1.
struct Degrees {
  int value, first, second;
};
struct Growth {
  Degrees tiny, large;
};
/// f64 has no wider type to be held against, but far from 1 these are powers of the scale.
const std::map<std::string, Growth> growths = [] {
  const Degrees linear{1, 0, 0}, flat{0, 0, 0}, squares{2, 1, 0}, length{1, 0, -1};
  std::map<std::string, Growth> all{
      {"var", {squares, squares}},       {"mse_loss", {squares, squares}},          {"norm", {length, length}},      {"matmul", {squares, squares}},
      {"softmax", {flat, flat}},         {"detail::softmax_or_zero", {flat, flat}}, {"log_softmax", {flat, linear}}, {"logsumexp", {flat, linear}},
      {"cross_entropy", {flat, linear}}, {"layer_norm", {{1, 0, 1}, {0, -1, -2}}},
  };
  for (const char* name : {"sum", "mean", "max", "min", "cat", "stack", "split", "chunk", "gather", "embedding", "dropout", "slice", "select",
                           "expand", "detail::sum_to", "detail::scatter_add", "detail::embedding_backward", "detail::slice_backward"})
    all[name] = {linear, linear};
  return all;
}();

std::vector<std::string> names_of_growths() {
  std::vector<std::string> names;
  for (const auto& [name, growth] : growths) names.push_back(name);
  return names;
}

TEST_P(OpGrowth, double_precision) {
  const Growth& growth = growths.at(GetParam());
  for_each_row([&](const OpRow& row) {
    if (row.name == "layer_norm" && row.inputs.size() > 1) return;         // the bias grows otherwise than the rest
    if (row.name == "logsumexp" && row.variant == "without_dims") return;  // of one element, which it is: linear
    const Tensors inputs = ops::make_inputs(row, f64);
    const auto compare = [&](int near, std::initializer_list<int> far, const Degrees& degrees) {
      const Orders from = orders_of(row, scaled(inputs, near));
      for (int exponent : far) {
        SCOPED_TRACE(testing::Message() << "inputs times 2^" << exponent);
        const auto grown = [&](const Tensors& tensors, int degree) { return scaled(tensors, degree * (exponent - near)); };
        const Orders expected{grown(from.value, degrees.value), grown(from.first, degrees.first), grown(from.again, degrees.first),
                              grown(from.second, degrees.second)};
        expect_fit(row, orders_of(row, scaled(inputs, exponent)), expected, exponent > 0);
      }
    };
    compare(-120, {-1022, -1000, -800, -600, -530, -500, -300}, growth.tiny);
    compare(120, {300, 500, 510, 520, 530, 600, 800, 1000, 1021}, growth.large);
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, OpRange, testing::ValuesIn(names_in_range()), test_name);
INSTANTIATE_TEST_SUITE_P(Rows, OpGrowth, testing::ValuesIn(names_of_growths()), test_name);

}  // namespace
}  // namespace heed::test
