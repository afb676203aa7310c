#include <cmath>
#include <numeric>
#include <set>

#include "support.h"

// Batches of tokens: what follows what, what is held out, and that a step's batch depends on nothing but the seed.

namespace heed {
namespace {

using nn::TokenBatch;
using nn::TokenDataset;
using test::message_of;
using test::values;

std::vector<Index> count_up(Index n) {
  std::vector<Index> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST(Dataset, TargetsFollowInputsAndTheTailIsHeldOut) {
  const TokenDataset data(count_up(100), {.held_out = 0.15, .seed = 3});
  EXPECT_EQ(data.train_size(), 85);
  EXPECT_EQ(data.held_out_size(), 15);
  std::set<double> first;
  for (Index step = 0; step < 200; ++step) {
    const auto [x, y] = data.batch(step, 4, 8);
    ASSERT_EQ(x.shape(), Dims({4, 8}));
    ASSERT_EQ(x.dtype(), i64);
    ASSERT_EQ(values(y), values(x + 1));
    for (double v : values(y)) ASSERT_LT(v, 85);
    for (Index b = 0; b < 4; ++b) first.insert(values(x[b])[0]);
  }
  EXPECT_EQ(first.size(), 77u);  // every place where 8 tokens and one more fit
  EXPECT_EQ(*first.rbegin(), 76);
}

TEST(Dataset, BatchesAreAFunctionOfSeedAndStep) {
  const TokenDataset a(count_up(1000), {.seed = 1}), b(count_up(1000), {.seed = 1}), c(count_up(1000), {.seed = 2});
  a.batch(0, 4, 8);
  manual_seed(9);
  EXPECT_EQ(values(a.batch(5, 4, 8).x), values(b.batch(5, 4, 8).x));
  EXPECT_NE(values(a.batch(5, 4, 8).x), values(a.batch(6, 4, 8).x));
  EXPECT_NE(values(a.batch(5, 4, 8).x), values(c.batch(5, 4, 8).x));
  EXPECT_EQ(rng_state(), (RngState{9, 0}));
}

TEST(Dataset, EveryHeldOutTokenIsATargetOnce) {
  for (Index T : {1, 2, 5, 8}) {
    for (Index held_out : {0, 1, 7, 8, 9, 30}) {
      const TokenDataset data = TokenDataset::from_parts(count_up(50), [&] {
        std::vector<Index> tail(static_cast<std::size_t>(held_out));
        std::iota(tail.begin(), tail.end(), 50);
        return tail;
      }());
      std::vector<Index> seen;
      for (Index w = 0; w < data.held_out_windows(T); ++w) {
        const auto [x, y] = data.held_out({w}, T);
        const std::vector<Index> in = x.to_vector<Index>(), out = y.to_vector<Index>();
        for (std::size_t t = 0; t < out.size(); ++t) {
          if (out[t] == TokenDataset::ignored) continue;
          EXPECT_EQ(out[t], in[t] + 1);
          EXPECT_GE(static_cast<Index>(t), T - std::max<Index>(T / 2, 1));  // what stands before it
          seen.push_back(out[t]);
        }
      }
      std::vector<Index> want(static_cast<std::size_t>(held_out));
      std::iota(want.begin(), want.end(), 50);
      EXPECT_EQ(seen, want) << "T " << T << ", held out " << held_out;
    }
  }
  EXPECT_EQ(TokenDataset(count_up(100)).held_out({1, 0}, 4).x.shape(), Dims({2, 4}));
}

TEST(Dataset, RefusesWhatDoesNotFit) {
  EXPECT_THROW(TokenDataset(std::vector<Index>{}), Error);
  EXPECT_THROW(TokenDataset::from_parts({}, count_up(3)), Error);
  EXPECT_THROW(TokenDataset(count_up(5), {.held_out = 1}), Error);
  EXPECT_THROW(TokenDataset(count_up(5), {.held_out = -0.1}), Error);
  const TokenDataset data(count_up(20), {.held_out = 0.5});
  EXPECT_EQ(data.batch(0, 2, 9).x.size(1), 9);
  const std::string text = message_of<Error>([&] { data.batch(0, 2, 10); });
  EXPECT_NE(text.find("T=10"), std::string::npos) << text;
  EXPECT_THROW(data.batch(-1, 2, 4), Error);
  EXPECT_THROW(data.batch(0, 0, 4), Error);
  EXPECT_THROW(data.held_out({99}, 4), IndexError);
  EXPECT_THROW(data.held_out({0}, 40), Error);
}

TEST(Baselines, CountPairs) {
  // Trained on abab...: a and b are equally frequent, and the pair tells all but what the added ones leave.
  std::vector<Index> train, tail{0, 1, 0, 1};
  for (int i = 0; i < 100; ++i) train.push_back(0), train.push_back(1);
  const TokenDataset data = TokenDataset::from_parts(train, tail);
  EXPECT_NEAR(nn::unigram_bits(data, 2), 1, 1e-12);
  EXPECT_NEAR(nn::bigram_bits(data, 2), -(2 * std::log2(101.0 / 102) + 2 * std::log2(100.0 / 101)) / 4, 1e-12);
  EXPECT_NEAR(nn::unigram_bits(TokenDataset::from_parts({0, 0}, {1}), 2), 2, 1e-12);  // 1 of 2 + 2
  EXPECT_TRUE(std::isnan(nn::bigram_bits(TokenDataset::from_parts({0, 0}, {}), 2)));
  EXPECT_THROW(nn::unigram_bits(data, 1), IndexError);
  EXPECT_THROW(nn::bigram_bits(data, 1), IndexError);
}

}  // namespace
}  // namespace heed
