#include <heed/autograd/attention.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include "op_table.h"

namespace heed::ops {
namespace {

using Options = std::function<AttentionOptions(const Tensors&)>;

Results attend(const Tensors& x, const AttentionOptions& options) {
  const RngState before = rng_state();
  manual_seed(11);  // the same weights are dropped in every call
  const auto [output, weights] = scaled_dot_product_attention(x[0], x[1], x[2], options);
  set_rng_state(before);
  return weights.defined() ? Tensors{output, weights} : Tensors{output};
}

Options with(const AttentionOptions& options) {
  return [=](const Tensors&) { return options; };
}
Options masked(const Mask& mask) { return with({.mask = mask}); }
/// The input behind q, k and v is a bias.
Options biased(const Mask& others = {}) {
  return [=](const Tensors& x) { return AttentionOptions{.mask = others & Mask::bias(x[3])}; };
}

Tensor keep_with_a_dead_row() { return tensor({{1, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 0, 1}}, boolean); }

/// A batch of 2, 2 heads, 3 queries, 4 keys, d_k 2, d_v 3.
std::vector<Input> heads() { return {in({2, 2, 3, 2}), in({2, 2, 4, 2}), in({2, 2, 4, 3})}; }
std::vector<Input> matrices(Index queries, Index keys) { return {in({queries, 2}), in({keys, 2}), in({keys, 3})}; }
std::vector<Input> with_bias(std::vector<Input> inputs, const Dims& bias) {
  inputs.push_back(in(bias));
  return inputs;
}

struct Case {
  const char* variant;
  std::vector<Input> inputs;
  Options options;
  Size size = Size::small;
};

std::vector<Case> cases() {
  return {
      {"plain", matrices(3, 4), with({})},
      {"same_shapes", {in({3, 2}), in({3, 2}), in({3, 2})}, with({})},
      {"heads", heads(), with({})},
      {"batches_broadcast", {in({2, 1, 2, 2}), in({1, 2, 3, 2}), in({2, 2, 3, 2})}, with({})},
      {"one_kv_head", {in({2, 2, 2}), in({1, 3, 2}), in({3, 2})}, with({})},
      {"scale", matrices(3, 4), with({.scale = 0.37})},
      {"dropout", {in({2, 3, 2}), in({2, 4, 2}), in({2, 4, 3})}, with({.dropout_p = 0.3, .training = true})},
      {"dropout_not_training", matrices(3, 4), with({.dropout_p = 0.3})},
      {"causal", {in({2, 3, 2}), in({2, 3, 2}), in({2, 3, 2})}, masked(Mask::causal())},
      {"causal_offset", matrices(2, 5), masked(Mask::causal(3))},
      {"causal_offset_0", matrices(2, 4), masked(Mask::causal(0))},
      {"causal_dead_rows", matrices(4, 3), masked(Mask::causal(-2))},
      {"keep_dead_row", matrices(3, 4), masked(Mask::keep(keep_with_a_dead_row()))},
      {"keep_broadcast", heads(), masked(Mask::keep(tensor({{{{1, 1, 0, 1}}}, {{{0, 1, 1, 0}}}}, boolean)))},
      {"bias", with_bias(matrices(3, 4), {3, 4}), biased()},
      {"bias_per_head", with_bias(heads(), {2, 1, 4}), biased()},
      {"lengths", {in({3, 2, 2}), in({3, 3, 2}), in({3, 3, 2})}, masked(Mask::lengths({3, 1, 0}))},
      {"window", matrices(4, 4), masked(Mask::window(2))},
      {"alibi", heads(), masked(Mask::alibi(2))},
      {"causal_and_keep",
       {in({3, 2}), in({3, 2}), in({3, 2})},
       masked(Mask::causal() & Mask::keep(tensor({{1, 1, 1}, {0, 1, 1}, {1, 0, 1}}, boolean)))},
      {"causal_and_bias", with_bias({in({3, 2}), in({3, 2}), in({3, 2})}, {3, 3}), biased(Mask::causal())},
      {"causal_window_alibi", heads(), masked(Mask::causal(1) & Mask::window(2) & Mask::alibi(2))},
      {"lengths_and_bias", with_bias(heads(), {3, 4}), biased(Mask::lengths({4, 2}))},
      {"alibi_and_bias", with_bias(heads(), {1, 4}), biased(Mask::alibi(2))},
      {"two_biases", with_bias(with_bias(matrices(2, 3), {2, 3}), {3}),
       [](const Tensors& x) { return AttentionOptions{.mask = Mask::bias(x[3]) & Mask::bias(x[4])}; }},
      {"empty", {in({0, 2, 2}), in({0, 3, 2}), in({0, 3, 5})}, with({})},
      {"no_queries", matrices(0, 3), with({})},
      {"no_keys", matrices(3, 0), with({})},
      {"no_keys_causal", matrices(3, 0), masked(Mask::causal(0))},
      {"d_k_0", {in({2, 0}), in({3, 0}), in({3, 2})}, with({})},
      {"large", {in({2, 3, 37, 24}), in({2, 3, 41, 24}), in({2, 3, 41, 20})}, with({}), Size::large},
      {"large_causal", {in({2, 133, 16}), in({2, 133, 16}), in({2, 133, 16})}, masked(Mask::causal()), Size::large},
  };
}

}  // namespace

std::vector<OpRow> attention_rows() {
  struct Way {
    const char* suffix;
    Kernel kernel;
    bool need_weights;
  };
  std::vector<OpRow> rows;
  for (const Way& way : {Way{"", Kernel::composed, true}, Way{"_tiled", Kernel::tiled, false}, Way{"_tiled_with_weights", Kernel::tiled, true}})
    for (const Case& c : cases())
      rows.push_back({"scaled_dot_product_attention", std::string(c.variant) + way.suffix, c.inputs,
                      [options = c.options, way](const Tensors& x) -> Results {
                        AttentionOptions o = options(x);
                        o.kernel = way.kernel, o.need_weights = way.need_weights;
                        return attend(x, o);
                      },
                      c.size, 16});
  return rows;
}

}  // namespace heed::ops
