// Mistakes that attention is written with, as formulas: what a function returns tells which of them it is.
#include <cmath>
#include <optional>

#include "exercise.h"

using namespace heed;

namespace {

double root(Index n) { return std::sqrt(static_cast<double>(n)); }
Tensor turned(const Tensor& x) { return transpose(x, 0, 1); }
/// Q K^T, and as it should be scaled.
Tensor products(const Tensor& Q, const Tensor& K) { return matmul(Q, turned(K)); }
Tensor scores(const Tensor& Q, const Tensor& K) { return products(Q, K) / root(Q.size(-1)); }
Attention with(const Tensor& weights, const Tensor& V) { return {matmul(weights, V), weights}; }
Tensor of_rows(const Tensor& e) { return e / sum(e, {-1}, true); }
/// The rest, done right.
Attention from(const Tensor& s, const Tensor& V) { return with(softmax(s, -1), V); }

struct Mistake {
  const char* hint;
  Attention (*formula)(const Tensor& Q, const Tensor& K, const Tensor& V);
};

using T = const Tensor&;
const Mistake mistakes[] = {
    {"the scores are not scaled: divide Q K^T by sqrt(d_k)", [](T Q, T K, T V) { return from(products(Q, K), V); }},
    {"the scores are divided by d_k: divide by its square root",
     [](T Q, T K, T V) { return from(products(Q, K) / static_cast<double>(Q.size(-1)), V); }},
    {"the scores are divided by sqrt(d_v): d_k is the last size of Q, not that of V",
     [](T Q, T K, T V) { return from(products(Q, K) / root(V.size(-1)), V); }},
    {"the scores are divided by the root of the sequence's length: d_k is the last size of Q, not the first",
     [](T Q, T K, T V) { return from(products(Q, K) / root(Q.size(0)), V); }},
    {"the scores are multiplied by sqrt(d_k): divide by it", [](T Q, T K, T V) { return from(products(Q, K) * root(Q.size(-1)), V); }},
    {"the scale comes after softmax: divide the scores, before it",
     [](T Q, T K, T V) { return with(softmax(products(Q, K), -1) / root(Q.size(-1)), V); }},
    {"softmax goes over the wrong axis: each row sums to 1, so it runs over the keys, axis -1",
     [](T Q, T K, T V) { return with(softmax(scores(Q, K), 0), V); }},
    {"exp is divided by the sum of the whole matrix: each row has a sum of its own, axis -1",
     [](T Q, T K, T V) {
       return with(reshape(softmax(flatten(scores(Q, K)), 0), {Q.size(0), K.size(0)}), V);
     }},
    {"the maximum of each column is subtracted: softmax stays the same only where a whole row loses the same number, axis -1",
     [](T Q, T K, T V) { return with(of_rows(exp(scores(Q, K) - max(scores(Q, K), {0}, true))), V); }},
    {"keepdim is missing from max: without it, the maximum of row i is taken from column i",
     [](T Q, T K, T V) { return with(of_rows(exp(scores(Q, K) - max(scores(Q, K), {-1}))), V); }},
    {"keepdim is missing from sum: without it, column i is divided by the sum of row i",
     [](T Q, T K, T V) {
       const Tensor e = exp(scores(Q, K) - max(scores(Q, K), {-1}, true));
       return with(e / sum(e, {-1}), V);
     }},
    {"keepdim is missing from max and from sum: without it, column i gets what belongs to row i",
     [](T Q, T K, T V) {
       const Tensor e = exp(scores(Q, K) - max(scores(Q, K), {-1}));
       return with(e / sum(e, {-1}), V);
     }},
    {"the weights of a row are all alike: the scores are lost, as by 1 / d of whole numbers, which is 0; divide by std::sqrt(double(d))",
     [](T Q, T K, T V) { return from(0 * products(Q, K), V); }},
    {"exp is not divided by its sum: softmax makes each row sum to 1", [](T Q, T K, T V) { return with(exp(scores(Q, K)), V); }},
    {"there is no softmax: the scores themselves weigh the values", [](T Q, T K, T V) { return with(scores(Q, K), V); }},
    {"softmax is applied twice", [](T Q, T K, T V) { return from(softmax(scores(Q, K), -1), V); }},
    {"K is not transposed: query i meets key j in Q K^T", [](T Q, T K, T V) { return from(matmul(Q, K) / root(Q.size(-1)), V); }},
    {"K is reshaped to (d_k, T), which mixes its rows: transpose it",
     [](T Q, T K, T V) {
       return from(matmul(Q, reshape(K, {K.size(1), K.size(0)})) / root(Q.size(-1)), V);
     }},
    {"Q and K are swapped: row i belongs to query i, so the scores are Q K^T, not K Q^T", [](T Q, T K, T V) { return from(scores(K, Q), V); }},
    {"the scores are Q Q^T: queries meet keys, Q K^T", [](T Q, T, T V) { return from(scores(Q, Q), V); }},
    {"the weights are transposed before they meet V",
     [](T Q, T K, T V) -> Attention {
       const Tensor A = softmax(scores(Q, K), -1);
       return {matmul(turned(A), V), A};
     }},
    {"the second result is the scores: return the weights, after softmax",
     [](T Q, T K, T V) -> Attention {
       return {from(scores(Q, K), V).output, scores(Q, K)};
     }},
    {"the second result is the scores before their scale: return the weights, after softmax",
     [](T Q, T K, T V) -> Attention {
       return {from(scores(Q, K), V).output, products(Q, K)};
     }},
    {"the results are in the wrong order: first the output, then the weights",
     [](T Q, T K, T V) -> Attention {
       const Attention right = from(scores(Q, K), V);
       return {right.weights, right.output};
     }},
    {"the weights meet K: the output mixes the rows of V", [](T Q, T K, T) { return with(softmax(scores(Q, K), -1), K); }},
    {"the weights are masked: here every query sees every key",
     [](T Q, T K, T V) { return scaled_dot_product_attention(Q, K, V, {.mask = Mask::causal()}); }},
};

bool same(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.shape() != b.shape()) return false;
  return all(le(abs(a.to(f64) - b.to(f64)), 1e-6 * (1 + abs(b.to(f64))))).item<bool>();
}

/// What it returns, or that it refuses.
template <class F>
std::optional<Attention> outcome(const F& f, const Tensor& Q, const Tensor& K, const Tensor& V) {
  try {
    return f(Q, K, V);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string recognize(const AttentionFunction& function) {
  // Sizes that differ tell one size from another; square ones let pass what else would be refused.
  const Tensor wide = randn({3, 5, 4}, f64), square = randn({3, 4, 4}, f64), narrow = randn({5, 2}, f64);
  const auto first = outcome(function, wide[0], wide[1], narrow), second = outcome(function, square[0], square[1], square[2]);
  if (!first && !second) return {};
  for (const auto& [hint, formula] : mistakes) {
    const auto matches = [formula = formula](const std::optional<Attention>& got, const Tensor& Q, const Tensor& K, const Tensor& V) {
      const auto expected = outcome(formula, Q, K, V);
      if (!got || !expected) return got.has_value() == expected.has_value();
      return same(got->output, expected->output) && same(got->weights, expected->weights);
    };
    if (matches(first, wide[0], wide[1], narrow) && matches(second, square[0], square[1], square[2])) return hint;
  }
  return {};
}
