// Masks as values, and what a call of attention would do and cost.
#include <fmt/format.h>
#include <heed/fmt.h>
#include <heed/heed.h>

using namespace heed;

int main() {
  manual_seed(1);
  // (B, H, T, d): the second sequence has two tokens, what follows them is padding.
  const Tensor q = randn({2, 1, 4, 8}), k = randn({2, 1, 4, 8}), v = randn({2, 1, 4, 8});
  const Mask mask = Mask::causal() & Mask::lengths({4, 2});
  auto [output, weights] = scaled_dot_product_attention(q, k, v, {.mask = mask});
  fmt::print("{}, weights of the second sequence:\n{}\n\n", to_string(mask), weights[1][0]);

  for (const Index T : {512, 4096})
    for (const bool need_weights : {true, false}) {
      const Tensor x = randn({8, T, 64});
      const AttentionPlan plan = attention_plan(x, x, x, {.mask = Mask::causal(), .need_weights = need_weights});
      fmt::print("T {:4}, {:>10}: {:8}  {:5.0f} MB beside the results: {}\n", T, need_weights ? "weights" : "no weights",
                 plan.kernel == Kernel::tiled ? "tiled" : "composed", plan.bytes / 1e6, plan.reason);
    }

  try {
    scaled_dot_product_attention(q, k, v, {.mask = ones({4, 4})});
  } catch (const Error& e) {
    fmt::print("\n{}\n", e.what());
  }
}
