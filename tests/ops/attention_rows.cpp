#include <heed/autograd/attention.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include "op_table.h"

namespace heed::ops {
namespace {

using Function = std::function<Results(const Tensors&)>;

Results attend(const Tensors& x, const AttentionOptions& options) {
  const RngState before = rng_state();
  manual_seed(11);  // the same weights are dropped in every call
  const auto [output, weights] = scaled_dot_product_attention(x[0], x[1], x[2], options);
  set_rng_state(before);
  return weights.defined() ? Tensors{output, weights} : Tensors{output};
}

Function with(const AttentionOptions& options) {
  return [=](const Tensors& x) { return attend(x, options); };
}
Function masked(const Mask& mask) { return with({.mask = mask}); }
/// The input behind q, k and v is a bias.
Function biased(const Mask& others = {}) {
  return [=](const Tensors& x) { return attend(x, {.mask = others & Mask::bias(x[3])}); };
}

Tensor keep_with_a_dead_row() { return tensor({{1, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 0, 1}}, boolean); }

/// A batch of 2, 2 heads, 3 queries, 4 keys, d_k 2, d_v 3.
std::vector<Input> heads() { return {in({2, 2, 3, 2}), in({2, 2, 4, 2}), in({2, 2, 4, 3})}; }
std::vector<Input> matrices(Index queries, Index keys) { return {in({queries, 2}), in({keys, 2}), in({keys, 3})}; }
std::vector<Input> with_bias(std::vector<Input> inputs, const Dims& bias) {
  inputs.push_back(in(bias));
  return inputs;
}

}  // namespace

std::vector<OpRow> attention_rows() {
  const char* name = "scaled_dot_product_attention";
  return {
      {name, "plain", matrices(3, 4), with({})},
      {name, "same_shapes", {in({3, 2}), in({3, 2}), in({3, 2})}, with({})},
      {name, "heads", heads(), with({})},
      {name, "batches_broadcast", {in({2, 1, 2, 2}), in({1, 2, 3, 2}), in({2, 2, 3, 2})}, with({})},
      {name, "one_kv_head", {in({2, 2, 2}), in({1, 3, 2}), in({3, 2})}, with({})},
      {name, "scale", matrices(3, 4), with({.scale = 0.37})},
      {name, "no_weights", matrices(3, 4), with({.need_weights = false})},
      {name, "dropout", {in({2, 3, 2}), in({2, 4, 2}), in({2, 4, 3})}, with({.dropout_p = 0.3, .training = true})},
      {name, "dropout_not_training", matrices(3, 4), with({.dropout_p = 0.3})},
      {name, "causal", {in({2, 3, 2}), in({2, 3, 2}), in({2, 3, 2})}, masked(Mask::causal())},
      {name, "causal_offset", matrices(2, 5), masked(Mask::causal(3))},
      {name, "causal_offset_0", matrices(2, 4), masked(Mask::causal(0))},
      {name, "causal_dead_rows", matrices(4, 3), masked(Mask::causal(-2))},
      {name, "keep_dead_row", matrices(3, 4), masked(Mask::keep(keep_with_a_dead_row()))},
      {name, "keep_broadcast", heads(), masked(Mask::keep(tensor({{{{1, 1, 0, 1}}}, {{{0, 1, 1, 0}}}}, boolean)))},
      {name, "bias", with_bias(matrices(3, 4), {3, 4}), biased()},
      {name, "bias_per_head", with_bias(heads(), {2, 1, 4}), biased()},
      {name, "lengths", {in({3, 2, 2}), in({3, 3, 2}), in({3, 3, 2})}, masked(Mask::lengths({3, 1, 0}))},
      {name, "window", matrices(4, 4), masked(Mask::window(2))},
      {name, "alibi", heads(), masked(Mask::alibi(2))},
      {name,
       "causal_and_keep",
       {in({3, 2}), in({3, 2}), in({3, 2})},
       masked(Mask::causal() & Mask::keep(tensor({{1, 1, 1}, {0, 1, 1}, {1, 0, 1}}, boolean)))},
      {name, "causal_and_bias", with_bias({in({3, 2}), in({3, 2}), in({3, 2})}, {3, 3}), biased(Mask::causal())},
      {name, "causal_window_alibi", heads(), masked(Mask::causal(1) & Mask::window(2) & Mask::alibi(2))},
      {name, "lengths_and_bias", with_bias(heads(), {3, 4}), biased(Mask::lengths({4, 2}))},
      {name, "alibi_and_bias", with_bias(heads(), {1, 4}), biased(Mask::alibi(2))},
      {name, "two_biases", with_bias(with_bias(matrices(2, 3), {2, 3}), {3}),
       [](const Tensors& x) { return attend(x, {.mask = Mask::bias(x[3]) & Mask::bias(x[4])}); }},
      {name, "empty", {in({0, 2, 2}), in({0, 3, 2}), in({0, 3, 5})}, with({})},
      {name, "no_queries", matrices(0, 3), with({})},
      {name, "no_keys", matrices(3, 0), with({})},
      {name, "no_keys_causal", matrices(3, 0), masked(Mask::causal(0))},
      {name, "d_k_0", {in({2, 0}), in({3, 0}), in({3, 2})}, with({})},
      {name, "large", {in({2, 3, 37, 24}), in({2, 3, 41, 24}), in({2, 3, 41, 20})}, with({}), Size::large},
      {name,
       "large_causal_no_weights",
       {in({2, 33, 16}), in({2, 33, 16}), in({2, 33, 16})},
       with({.mask = Mask::causal(), .need_weights = false}),
       Size::large},
  };
}

}  // namespace heed::ops
