#include <set>

#include "support.h"

// Writing token by token: with and without caches, past block_size, how tokens are chosen, and what is refused.

namespace heed {
namespace {

using test::message_of;
using Tokens = std::vector<Index>;

Tokens tokens(const Tensor& t) { return t.to_vector<Index>(); }

/// Its logits differ clearly, so that rounding decides nothing.
nn::GPT lively(const nn::GPTConfig& config = {.vocab_size = 13, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = 0.2}) {
  nn::GPT m(config);
  const NoGrad off;
  for (auto& [name, p] : nn::named_parameters(m)) Tensor(p).copy_(randn(p.shape()));
  return m;
}

/// Written out: the last block_size tokens, the largest logit.
Tensor greedy(nn::GPT m, Tensor idx, Index count) {
  nn::train(m, false);
  const NoGrad off;
  for (Index i = 0; i < count; ++i) {
    const Index T = idx.size(1), window = m.config().block_size;
    const Tensor logits = m(slice(idx, 1, std::max<Index>(0, T - window), T));
    idx = cat({idx, argmax(select(logits, 1, -1), -1, true)}, 1);
  }
  return idx;
}

TEST(Generate, IsGreedyAtTemperatureZeroWithAndWithoutCache) {
  manual_seed(1);
  const nn::GPT m = lively();
  // Inside of block_size, across it, and from a prompt that is longer.
  for (const Index T : {1, 3, 8, 12}) {
    const Tensor prompt = randint(0, 13, {3, T});
    for (const Index count : {0, 1, 4, 20}) {
      const Tensor want = greedy(m, prompt, count);
      for (const bool cache : {true, false})
        EXPECT_EQ(tokens(nn::generate(m, prompt, {.max_new_tokens = count, .temperature = 0, .use_cache = cache})), tokens(want))
            << "T " << T << ", " << count << " tokens, cache " << cache;
    }
  }
}

TEST(Generate, SamplesTheSameWithAndWithoutCachePastBlockSize) {
  manual_seed(2);
  const nn::GPT m = lively();
  const Tensor prompt = randint(0, 13, {2, 5});
  const auto run = [&](bool cache, std::uint64_t seed) {
    return tokens(nn::generate(m, prompt, {.max_new_tokens = 24, .temperature = 0.9, .top_k = 6, .top_p = 0.95, .seed = seed, .use_cache = cache}));
  };
  EXPECT_EQ(run(true, 3), run(false, 3));
  EXPECT_NE(run(true, 3), run(true, 4));
}

TEST(Generate, TakesOneSequenceOrABatch) {
  manual_seed(3);
  const nn::GPT m = lively();
  const Tensor batch = randint(0, 13, {2, 4});
  const Tensor all = nn::generate(m, batch, {.max_new_tokens = 5, .temperature = 0});
  EXPECT_EQ(all.shape(), (Dims{2, 9}));
  EXPECT_EQ(all.dtype(), i64);
  for (Index b = 0; b < 2; ++b) {
    const Tensor one = nn::generate(m, batch[b], {.max_new_tokens = 5, .temperature = 0});
    EXPECT_EQ(one.shape(), Dims{9});
    EXPECT_EQ(tokens(one), tokens(all[b]));
  }
  EXPECT_EQ(nn::generate(m, zeros({0, 3}, i64), {.max_new_tokens = 2}).shape(), (Dims{0, 5}));
}

TEST(Generate, StreamsAndStops) {
  manual_seed(4);
  const nn::GPT m = lively();
  const Tensor prompt = tensor({1, 2, 3}, i64);
  Tokens seen;
  const auto collect = [&](const Tensor& t) {
    EXPECT_EQ(t.dim(), 0);
    seen.push_back(t.item<Index>());
    return true;
  };
  const Tokens all = tokens(nn::generate(m, prompt, {.max_new_tokens = 6, .seed = 1, .on_token = collect}));
  EXPECT_EQ(seen, Tokens(all.begin() + 3, all.end()));
  int calls = 0;
  const Tensor few = nn::generate(m, prompt, {.max_new_tokens = 6, .seed = 1, .on_token = [&](const Tensor&) { return ++calls < 2; }});
  EXPECT_EQ(tokens(few), Tokens(all.begin(), all.begin() + 5));
}

/// Frequencies of the next token against softmax(logits / temperature), restricted as asked.
TEST(Generate, DrawsFromTheModelsDistribution) {
  manual_seed(5);
  const nn::GPT m = lively({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 2, .dropout = 0});
  const NoGrad off;
  Tensor(m.transformer.wte.weight).copy_(m.transformer.wte.weight * 0.7);
  const Index count = 20000;
  const Tensor one = tensor({{1, 2}}, i64), many = expand(one, {count, 2});
  const std::vector<double> logits = select(m(one), 1, -1).to_vector<double>();
  std::vector<std::size_t> order(5);
  for (std::size_t i = 0; i < 5; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  struct Case {
    double temperature;
    Index top_k;
    double top_p;
  };
  for (const Case& c : {Case{1, 0, 1}, Case{2.5, 0, 1}, Case{2.5, 3, 1}, Case{2.5, 0, 0.6}, Case{2.5, 4, 0.7}, Case{1, 99, 1}}) {
    std::vector<double> p(5, 0);
    double total = 0;
    for (std::size_t i = 0; i < 5; ++i)
      if (c.top_k == 0 || static_cast<Index>(i) < c.top_k) total += p[order[i]] = std::exp(logits[order[i]] / c.temperature);
    double sum = 0, kept = 0;
    for (std::size_t i : order) {
      const bool inside = sum < c.top_p * total;
      sum += p[i];
      if (!inside) p[i] = 0;
      kept += p[i];
    }
    const Tensor out = nn::generate(m, many, {.max_new_tokens = 1, .temperature = c.temperature, .top_k = c.top_k, .top_p = c.top_p, .seed = 8});
    std::vector<double> frequency(5, 0);
    for (Index t : tokens(select(out, 1, 2))) frequency[static_cast<std::size_t>(t)] += 1.0 / static_cast<double>(count);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(frequency[i], p[i] / kept, 0.015) << "token " << i << " at " << c.temperature << ", " << c.top_k << ", " << c.top_p;
      if (p[i] == 0) {
        EXPECT_EQ(frequency[i], 0);
      }
    }
  }
}

/// A model that gives these logits whatever it has read.
nn::GPT constant(const std::vector<double>& logits) {
  nn::GPT m({.vocab_size = static_cast<Index>(logits.size()), .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 2, .dropout = 0});
  const NoGrad off;
  m.transformer.ln_f.weight.fill_(0);
  m.transformer.ln_f.bias.copy_(tensor({1, 0}));
  m.transformer.wte.weight.copy_(stack({from_vector(logits, {m.config().vocab_size}), zeros({m.config().vocab_size}, f64)}, 1));
  return m;
}

/// Of equal logits those of lower tokens stay: k tokens, not one more.
TEST(Generate, TopKKeepsExactlyKOfTies) {
  const auto seen = [](const std::vector<double>& logits, const nn::GenerateOptions& options) {
    const Tensor out = nn::generate(constant(logits), zeros({3000, 1}, i64), options);
    const Tokens drawn = tokens(select(out, 1, 1));
    return std::set<Index>(drawn.begin(), drawn.end());
  };
  const auto top = [](Index k) { return nn::GenerateOptions{.max_new_tokens = 1, .temperature = 4, .top_k = k, .seed = 3}; };
  using Set = std::set<Index>;
  EXPECT_EQ(seen({2, 5, 2, 2, 7}, top(3)), (Set{0, 1, 4}));
  EXPECT_EQ(seen({2, 5, 2, 2, 7}, top(4)), (Set{0, 1, 2, 4}));
  EXPECT_EQ(seen({2, 5, 2, 2, 7}, top(2)), (Set{1, 4}));
  EXPECT_EQ(seen({2, 5, 2, 2, 7}, top(5)), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen({4, 4, 4, 4}, top(1)), Set{0});
  EXPECT_EQ(seen({4, 4, 4, 4}, top(2)), (Set{0, 1}));
  EXPECT_EQ(seen({4, 4, 4, 4}, {.max_new_tokens = 1, .top_p = .5, .seed = 3}), (Set{0, 1}));
  EXPECT_EQ(seen({4, 4, 4, 4}, {.max_new_tokens = 1, .temperature = 0}), Set{0});
}

TEST(Generate, HasRandomNumbersOfItsOwnOrTheProcesss) {
  const nn::GPT m = lively();
  const Tensor prompt = tensor({{1, 2}}, i64);
  const RngState before = rng_state();
  const Tokens first = tokens(nn::generate(m, prompt, {.max_new_tokens = 9, .seed = 5}));
  nn::generate(m, prompt, {.max_new_tokens = 9, .temperature = 0});
  EXPECT_EQ(rng_state(), before) << "neither a seed nor greed draws from the process's";
  EXPECT_EQ(tokens(nn::generate(m, prompt, {.max_new_tokens = 9, .seed = 5})), first);
  manual_seed(6);
  const nn::GenerateOptions hot{.max_new_tokens = 9, .temperature = 20};  // else the same token comes again and again
  const Tokens drawn = tokens(nn::generate(m, prompt, hot)), next = tokens(nn::generate(m, prompt, hot));
  manual_seed(6);
  EXPECT_EQ(tokens(nn::generate(m, prompt, hot)), drawn);
  EXPECT_NE(next, drawn);
}

TEST(Generate, LeavesTheModelInItsMode) {
  const nn::GPT m = lively();
  const Tensor prompt = tensor({1, 2}, i64);
  const auto run = [&] { return tokens(nn::generate(m, prompt, {.max_new_tokens = 9, .temperature = 0})); };
  EXPECT_EQ(run(), run()) << "no dropout, though the model is in training";
  EXPECT_TRUE(m.transformer.drop.training && m.transformer.h[0].attn.training);
  EXPECT_TRUE(m(unsqueeze(prompt, 0)).requires_grad()) << "recording goes on afterwards";
}

TEST(Generate, DoesNotShareMemoryWithThePrompt) {
  const nn::GPT m = lively();
  Tensor prompt = tensor({1, 2}, i64);
  const Tensor out = nn::generate(m, prompt, {.max_new_tokens = 0});
  prompt.fill_(0);
  EXPECT_EQ(tokens(out), (Tokens{1, 2}));
}

TEST(Generate, RefusesWhatMakesNoSense) {
  nn::GPT m = lively();
  const Tensor prompt = tensor({1, 2}, i64);
  const auto with = [&](const nn::GenerateOptions& o) { return message_of<Error>([&] { nn::generate(m, prompt, o, {"run.cpp", 7}); }); };
  EXPECT_EQ(with({.max_new_tokens = -1}), "generate: max_new_tokens is negative: -1 (called at run.cpp:7)");
  EXPECT_EQ(with({.temperature = -0.5}), "generate: temperature is negative or not finite: -0.5 (called at run.cpp:7)");
  EXPECT_EQ(with({.temperature = NAN}), "generate: temperature is negative or not finite: nan (called at run.cpp:7)");
  EXPECT_EQ(with({.top_k = -2}), "generate: top_k is negative: -2 (called at run.cpp:7)");
  EXPECT_EQ(with({.top_p = 0}), "generate: top_p is not in (0, 1]: 0 (called at run.cpp:7)");
  EXPECT_EQ(with({.top_p = 1.5}), "generate: top_p is not in (0, 1]: 1.5 (called at run.cpp:7)");
  EXPECT_NE(message_of<ShapeError>([&] { nn::generate(m, zeros({0}, i64)); }), "");
  EXPECT_NE(message_of<ShapeError>([&] { nn::generate(m, zeros({1, 1, 1}, i64)); }), "");
  EXPECT_NE(message_of<DTypeError>([&] { nn::generate(m, zeros({3})); }), "");
  EXPECT_NE(message_of<IndexError>([&] { nn::generate(m, tensor({13}, i64)); }), "");
  const NoGrad off;
  m.transformer.ln_f.bias.fill_(NAN);
  EXPECT_EQ(with({}), "generate: the model gives NaN or no finite logit for sequence 0 (called at run.cpp:7)");
  EXPECT_NE(with({.temperature = 0}), "");
}

}  // namespace
}  // namespace heed
