// The exercise passes as it is shipped, and each wrong solution gets the hint that names its mistake.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "exercise/exercise.h"

namespace heed {
namespace {

// Written as a user writes them, by plain ops.

double root(Index n) { return std::sqrt(static_cast<double>(n)); }
Tensor products(const Tensor& Q, const Tensor& K) { return matmul(Q, transpose(K, 0, 1)); }
Tensor shares(const Tensor& scores, Index axis = -1) {
  const Tensor e = exp(scores - max(scores, {axis}, true));
  return e / sum(e, {axis}, true);
}
Attention with(const Tensor& weights, const Tensor& V) { return {matmul(weights, V), weights}; }

Attention no_maximum(const Tensor& Q, const Tensor& K, const Tensor& V) {
  const Tensor e = exp(products(Q, K) / root(Q.size(-1)));
  return with(e / sum(e, {-1}, true), V);
}
Attention one_maximum(const Tensor& Q, const Tensor& K, const Tensor& V) {
  const Tensor scores = products(Q, K) / root(Q.size(-1)), e = exp(scores - max(scores));
  return with(e / sum(e, {-1}, true), V);
}
Attention no_keepdim(const Tensor& Q, const Tensor& K, const Tensor& V) {
  const Tensor scores = products(Q, K) / root(Q.size(-1)), e = exp(scores - max(scores, {-1}));
  return with(e / sum(e, {-1}), V);
}
Attention no_scale(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(Q, K)), V); }
Attention no_root(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(Q, K) / Q.size(-1)), V); }
Attention whole_numbers(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(Q, K) * (1 / Q.size(-1))), V); }
Attention scale_of_values(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(Q, K) / root(V.size(-1))), V); }
Attention scale_of_length(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(Q, K) / root(Q.size(0))), V); }
Attention wrong_axis(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(Q, K) / root(Q.size(-1)), 0), V); }
Attention not_transposed(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(matmul(Q, K) / root(Q.size(-1))), V); }
Attention swapped(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(K, Q) / root(Q.size(-1))), V); }
Attention scores_returned(const Tensor& Q, const Tensor& K, const Tensor& V) {
  const Tensor scores = products(Q, K) / root(Q.size(-1));
  return {matmul(shares(scores), V), scores};
}
Attention no_softmax(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(products(Q, K) / root(Q.size(-1)), V); }
Attention results_swapped(const Tensor& Q, const Tensor& K, const Tensor& V) {
  const Tensor weights = shares(products(Q, K) / root(Q.size(-1)));
  return {weights, matmul(weights, V)};
}
Attention nothing(const Tensor&, const Tensor&, const Tensor&) { return {}; }
Attention nearly(const Tensor& Q, const Tensor& K, const Tensor& V) { return with(shares(products(Q, K) / root(Q.size(-1)) + Q), V); }

/// Names of the checks that fail.
std::vector<std::string> failed(const Verdict& verdict) {
  std::vector<std::string> names;
  for (const Check& check : verdict.checks)
    if (!check.problem.empty()) names.push_back(check.name);
  return names;
}

TEST(Exercise, ShippedSolutionPasses) {
  const Verdict verdict = judge(attention);
  EXPECT_EQ(verdict.checks.size(), 6U);
  EXPECT_EQ(failed(verdict), std::vector<std::string>{});
  EXPECT_EQ(verdict.hint, "");
  EXPECT_EQ(recognize(attention), "");
}

TEST(Exercise, EachMistakeGetsItsOwnHint) {
  const struct {
    AttentionFunction function;
    const char* hint;
  } wrong[] = {
      {no_maximum, "no maximum is subtracted"},
      {one_maximum, "the maximum subtracted is that of the whole matrix"},
      {no_keepdim, "keepdim is missing from max and from sum"},
      {no_scale, "the scores are not scaled"},
      {no_root, "the scores are divided by d_k"},
      {whole_numbers, "the weights of a row are all alike"},
      {scale_of_values, "the scores are divided by sqrt(d_v)"},
      {scale_of_length, "the scores are divided by the root of the sequence's length"},
      {wrong_axis, "softmax goes over the wrong axis"},
      {not_transposed, "K is not transposed"},
      {swapped, "Q and K are swapped"},
      {scores_returned, "the second result is the scores: "},
      {no_softmax, "there is no softmax"},
      {results_swapped, "the results are in the wrong order"},
      {nothing, "return {output, weights}"},
  };
  std::set<std::string> hints;
  for (const auto& [function, hint] : wrong) {
    const Verdict verdict = judge(function);
    EXPECT_EQ(verdict.hint.substr(0, std::string(hint).size()), hint);
    EXPECT_NE(failed(verdict), std::vector<std::string>{}) << hint;
    hints.insert(verdict.hint);
  }
  EXPECT_EQ(hints.size(), std::size(wrong));
}

TEST(Exercise, OverflowFailsOneCheckOnly) {
  EXPECT_EQ(failed(judge(no_maximum)), std::vector<std::string>{"large scores stay finite"});
  EXPECT_EQ(failed(judge(one_maximum)), std::vector<std::string>{"large scores stay finite"});
}

TEST(Exercise, ValuesOfAnotherSizeTellScales) { EXPECT_EQ(failed(judge(scale_of_values)).front(), "values of another size than keys"); }

TEST(Exercise, ProblemsQuoteValues) {
  EXPECT_EQ(judge(no_scale).checks[1].problem, "output[0][0] is 1.537882843, not 1.6605");
  EXPECT_EQ(judge(nothing).checks[0].problem, "missing: output");
  EXPECT_EQ(judge(results_swapped).checks[0].problem, "the output has shape (3, 3), not (3, 4)");
}

TEST(Exercise, UnknownMistakesGetTheHintOfTheFirstCheckThatFails) {
  EXPECT_EQ(recognize(nearly), "");
  EXPECT_EQ(failed(judge(nearly)).front(), "shapes");
  EXPECT_EQ(judge(nearly).hint, "return {output, weights}: (T, d_v) and (T, T)");
}

TEST(Exercise, ReportTellsWhetherAllChecksPass) {
  std::ostringstream right, wrong;
  EXPECT_TRUE(report(judge(attention), right));
  EXPECT_NE(right.str().find("6 of 6 checks pass"), std::string::npos) << right.str();
  EXPECT_FALSE(report(judge(no_maximum), wrong));
  EXPECT_NE(wrong.str().find("5 of 6 checks pass\n\nhint: no maximum"), std::string::npos) << wrong.str();
}

}  // namespace
}  // namespace heed
