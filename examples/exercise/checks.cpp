// The six checks, over inputs in f64.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "exercise.h"

using namespace heed;

namespace {

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  text.precision(10);
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

void expect_shape(const char* name, const Tensor& t, const Dims& shape) {
  if (!t.defined()) fail("missing: ", name);
  if (t.shape() != shape) fail("the ", name, " has shape ", t.shape(), ", not ", shape);
}

/// The first element that is off is named.
void expect_close(const char* name, const Tensor& got, const Tensor& expected, double tolerance) {
  expect_shape(name, got, expected.shape());
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  const auto columns = static_cast<std::size_t>(expected.size(-1));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= tolerance)) fail(name, "[", i / columns, "][", i % columns, "] is ", a[i], ", not ", b[i]);
}

void expect_close(const Attention& got, const Attention& expected, double tolerance) {
  expect_close("output", got.output, expected.output, tolerance);
  expect_close("weights", got.weights, expected.weights, tolerance);
}

void shapes(const AttentionFunction& f) {
  const auto [output, weights] = f(randn({3, 4}, f64), randn({3, 4}, f64), randn({3, 4}, f64));
  expect_shape("output", output, {3, 4});
  expect_shape("weights", weights, {3, 3});
}

void examples(const AttentionFunction& f) {
  const Tensor Q = eye(2, f64), V = tensor({{1, 2}, {3, 4}, {5, 6}}, f64);
  expect_close(f(Q, Q, slice(V, 0, 0, 2)), {tensor({{1.6605, 2.6605}, {2.3395, 3.3395}}, f64), tensor({{0.6698, 0.3302}, {0.3302, 0.6698}}, f64)},
               5.1e-5);
  expect_close(f(zeros({3, 4}, f64), randn({3, 4}, f64), V), {tensor({{3, 4}, {3, 4}, {3, 4}}, f64), full({3, 3}, 1. / 3, f64)}, 1e-9);
}

void rows(const AttentionFunction& f) {
  const Tensor weights = f(randn({6, 4}, f64), randn({6, 4}, f64), randn({6, 4}, f64)).weights;
  expect_shape("weights", weights, {6, 6});
  const double least = min(weights).item<double>();
  if (!(least >= 0)) fail("the least weight is ", least);
  const std::vector<double> sums = sum(weights, {-1}).to_vector<double>();
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (!(std::abs(sums[i] - 1) <= 1e-9)) fail("row ", i, " of the weights sums to ", sums[i], ", not 1");
}

/// Scores of this size overflow exp; in the second input, only the least row is far below the rest.
void large_scores(const AttentionFunction& f) {
  const Tensor K = tensor({{1, 0}, {0, 1}, {1, 1}}, f64), V = tensor({{1, 2}, {3, 4}, {5, 6}}, f64);
  for (const Tensor& Q : {K * 2000, tensor({{2000, 2000}, {-2000, -2001}, {1, 2}}, f64)}) {
    const Attention got = f(Q, K, V);
    expect_shape("output", got.output, {3, 2});
    for (const double v : got.output.to_vector<double>())
      if (!std::isfinite(v)) fail("for scores in the thousands, the output has ", v);
    expect_close(got, scaled_dot_product_attention(Q, K, V), 1e-9);
  }
}

void value_sizes(const AttentionFunction& f) {
  for (const Index d_v : {1, 7}) {
    const Tensor Q = randn({5, 3}, f64), K = randn({5, 3}, f64), V = randn({5, d_v}, f64);
    expect_close(f(Q, K, V), scaled_dot_product_attention(Q, K, V), 1e-9);
  }
}

void random_inputs(const AttentionFunction& f) {
  for (const Index length : {1, 2, 16, 33}) {
    const Tensor x = randn({3, length, 8}, f64);
    expect_close(f(x[0], x[1], x[2]), scaled_dot_product_attention(x[0], x[1], x[2]), 1e-9);
  }
}

/// Why large scores fail where others do not; empty when it is not an overflow.
const char* overflow(const AttentionFunction& f) {
  const Tensor K = eye(2, f64);
  const auto finite = [&](const Tensor& Q) { return all(isfinite(f(Q, K, K).output)).item<bool>(); };
  if (!finite(K * 2000)) return "no maximum is subtracted: exp overflows unless each row's largest score is taken away before it";
  if (!finite(tensor({{2000, 2000}, {-2000, -2001}}, f64)))
    return "the maximum subtracted is that of the whole matrix: exp of a row far below it is 0 throughout; take that of each row, axis -1";
  return "";
}

}  // namespace

Verdict judge(const AttentionFunction& function) {
  const char* large = "large scores stay finite";
  const struct {
    const char* name;
    void (*run)(const AttentionFunction&);
    const char* hint;  ///< where nothing better is known
  } checks[] = {
      {"shapes", shapes, "return {output, weights}: (T, d_v) and (T, T)"},
      {"the examples of the page", examples, "work the first example out by hand: its scores are 0.7071 and 0"},
      {"weights are not negative, rows sum to 1", rows, "softmax: exp, divided by its sum over the row"},
      {large, large_scores, "subtract each row's largest score before exp"},
      {"values of another size than keys", value_sizes, "d_v is the size of the output only; d_k is that of Q and K"},
      {"random inputs, against heed's own attention", random_inputs, "compare each step with the formula: softmax(Q K^T / sqrt(d_k)) V"},
  };
  manual_seed(1);
  Verdict verdict;
  const char* hint = nullptr;
  for (const auto& check : checks) {
    std::string problem;
    try {
      check.run(function);
    } catch (const std::exception& e) {
      problem = e.what();
      if (!hint) hint = check.hint;
    }
    verdict.checks.push_back({check.name, problem});
  }
  if (!hint) return verdict;
  verdict.hint = recognize(function);
  const bool only_large =
      std::all_of(verdict.checks.begin(), verdict.checks.end(), [&](const Check& c) { return c.problem.empty() == (c.name != large); });
  if (verdict.hint.empty() && only_large) verdict.hint = overflow(function);
  if (verdict.hint.empty()) verdict.hint = hint;
  return verdict;
}

bool report(const Verdict& verdict, std::ostream& out) {
  std::size_t passed = 0;
  for (const Check& check : verdict.checks) {
    passed += check.problem.empty();
    out << (check.problem.empty() ? "  ok     " : "  wrong  ") << check.name << "\n";
    if (!check.problem.empty()) out << "         " << check.problem << "\n";
  }
  out << passed << " of " << verdict.checks.size() << " checks pass\n";
  if (!verdict.hint.empty()) out << "\nhint: " << verdict.hint << "\n";
  return passed == verdict.checks.size();
}
