#include <gmock/gmock.h>
#include <heed/heed.h>

#include <functional>

#include "support.h"

// An error names the line of the user's program, however many layers lie between it and the op that refuses.

namespace heed::test {
namespace {

/// The call stands on the line that gives it.
void expect_located(const char* op, const std::function<void()>& call, int line = __builtin_LINE()) {
  const std::string text = message_of<Error>(call);
  EXPECT_THAT(text, testing::StartsWith(std::string(op) + ": "));
  EXPECT_THAT(text, testing::EndsWith(" (called at " __FILE__ ":" + std::to_string(line) + ")"));
}

TEST(Callers, OfLayers) {
  const nn::Linear linear(3, 2);
  const nn::LayerNorm norm(3);
  const nn::Embedding table(5, 3);
  const nn::Dropout drop(0.5);
  const nn::SingleHeadSelfAttention head(3, 2);
  const nn::TransformerEncoderLayer encoder(4, 2);
  expect_located("linear", [&] { linear(ones({2, 4})); });
  expect_located("linear", [&] { linear(Tensor()); });
  expect_located("layer_norm", [&] { norm(ones({2, 4})); });
  expect_located("embedding", [&] { table(tensor({7}, i64)); });
  expect_located("dropout", [&] { drop(tensor({7}, i64)); });
  expect_located("SingleHeadSelfAttention", [&] { head(ones({2, 4})); });
  expect_located("scaled_dot_product_attention", [&] { head(ones({2, 3}), Mask(ones({3, 3}, boolean))); });
  expect_located("MultiHeadAttention", [&] { encoder(ones({2, 3})); });
  expect_located("rotary", [&] { nn::rotary(ones({2, 3})); });
}

TEST(Callers, OfLayersInARow) {
  const nn::Sequential mlp(nn::Linear(4, 16), relu, nn::Linear(16, 1));
  const nn::Sequential encoders(nn::TransformerEncoderLayer(4, 2), nn::TransformerEncoderLayer(4, 2));
  const nn::Sequential blocks(nn::GPTBlock({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 2, .n_embd = 4}));
  expect_located("linear", [&] { mlp(ones({2, 3})); });
  expect_located("linear", [&] { mlp(ones({2, 4}, f64)); });
  expect_located("MultiHeadAttention", [&] { encoders(ones({2, 3})); });
  expect_located("layer_norm", [&] { blocks(ones({1, 2, 3})); });
  const nn::Sequential heads(nn::LayerNorm({4}), nn::SingleHeadSelfAttention(5, 3));
  expect_located("SingleHeadSelfAttention", [&] { heads(ones({2, 4})); });
  const nn::Sequential models(nn::GPT({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 2, .n_embd = 4}));
  expect_located("GPT", [&] { models(zeros({1, 5}, i64)); });
}

TEST(Callers, OfMultiHeadAttention) {
  const nn::MultiHeadAttention mha(4, 2), grouped(8, 4, {.num_kv_heads = 2});
  const Tensor x = ones({1, 3, 4}), wide = ones({1, 3, 8});
  expect_located("MultiHeadAttention", [&] { mha(wide); });
  expect_located("MultiHeadAttention", [&] { mha(Tensor()); });
  expect_located("MultiHeadAttention", [&] { mha(x, Mask(ones({2, 4, 4}, boolean))); });
  expect_located("MultiHeadAttention", [&] { grouped(wide, Mask(ones({1, 3, 3, 3}, boolean))); });
  expect_located("linear", [&] { mha(x.to(f64)); });
  expect_located("scaled_dot_product_attention", [&] { mha(x, Mask(ones({5, 5}, boolean))); });
  nn::KVCache cache;
  expect_located("MultiHeadAttention", [&] { mha(x, {}, &cache); });
  const NoGrad off;
  mha(x, Mask::causal(), &cache);
  expect_located("Mask", [&] { mha(x, Mask::causal(1), &cache); });
  expect_located("KVCache", [&] { mha(ones({2, 3, 4}), {}, &cache); });
  expect_located("KVCache", [&] { cache.append(ones({3}), ones({3})); });
}

TEST(Callers, OfModels) {
  const nn::GPT gpt({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 2, .n_embd = 4});
  const Tensor ids = tensor({{1, 2, 3}}, i64);
  expect_located("GPT", [&] { gpt(ones({3})); });
  expect_located("GPT", [&] { gpt(Tensor()); });
  expect_located("GPT", [&] { gpt(zeros({1, 5}, i64)); });
  expect_located("embedding", [&] { gpt(ids + 4); });
  expect_located("embedding", [&] { gpt(ids.to(f32)); });
  expect_located("generate", [&] { nn::generate(gpt, ids.to(f32)); });
  expect_located("embedding", [&] { nn::generate(gpt, ids + 4); });
  std::vector<nn::KVCache> caches;
  expect_located("GPT", [&] { gpt(ids, &caches); });
}

}  // namespace
}  // namespace heed::test
