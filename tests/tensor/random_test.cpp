#include <gmock/gmock.h>
#include <heed/tensor/parallel.h>
#include <heed/tensor/random.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>
#include <thread>

#include "file_helpers.h"

namespace heed {
namespace {

using detail::philox4x32;
using detail::uniform_at;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::error_of;

class Random : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(threads_); }
  const int threads_ = detail::num_threads();
};

// The rows "philox4x32 10" of tests/kat_vectors in Random123, https://github.com/DEShawResearch/random123: counter, key, result.
TEST_F(Random, PhiloxGivesThePublishedAnswers) {
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

std::uint64_t word_at(std::uint64_t seed, std::uint64_t position) {
  const auto part = [](std::uint64_t x, int shift) { return static_cast<std::uint32_t>(x >> shift); };
  const auto w = philox4x32({part(position / 2, 0), part(position / 2, 32), 0, 0}, {part(seed, 0), part(seed, 32)});
  return position % 2 == 0 ? w[0] | std::uint64_t{w[1]} << 32 : w[2] | std::uint64_t{w[3]} << 32;
}

TEST_F(Random, PositionsMapToTheUpper53BitsOfTheirWord) {
  for (std::uint64_t seed : {0ull, 1ull, 0x123456789abcdefull})
    for (std::uint64_t position : {0ull, 1ull, 2ull, 3ull, 0x1ffffffffull, 0x200000000ull, ~0ull}) {
      const double u = uniform_at(seed, position);
      EXPECT_EQ(u, std::ldexp(static_cast<double>(word_at(seed, position) >> 11), -53));
      EXPECT_LT(u, 1);
    }
}

TEST_F(Random, ManyUniformsAreThoseOfTheirPositions) {
  for (std::uint64_t begin : {0ull, 1ull, 6ull, 7ull, ~0ull - 3})
    for (Index n : {0, 1, 2, 3, 8, 9}) {
      std::vector<double> out(static_cast<std::size_t>(n) + 1, -1);
      detail::uniforms_at(out.data(), 5, begin, n);
      for (Index i = 0; i < n; ++i)
        EXPECT_EQ(out[static_cast<std::size_t>(i)], uniform_at(5, begin + static_cast<std::uint64_t>(i))) << begin << " " << i;
      EXPECT_EQ(out.back(), -1);
    }
}

TEST_F(Random, RandIsTheUniformsInOrder) {
  manual_seed(3);
  rand({4});
  const auto values = rand({2, 3}, f64).to_vector<double>();
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(values[i], uniform_at(3, 4 + i));
}

TEST_F(Random, NormalsFollowTheFormulaOfBoxAndMuller) {
  manual_seed(3);
  const auto values = randn({7}, f64).to_vector<double>();
  for (std::size_t k = 0; k < 4; ++k) {
    const double r = std::sqrt(-2 * std::log1p(-uniform_at(3, 2 * k))), t = 2 * std::numbers::pi * uniform_at(3, 2 * k + 1);
    EXPECT_NEAR(values[2 * k], r * std::cos(t), 1e-14);
    if (k < 3) {
      EXPECT_NEAR(values[2 * k + 1], r * std::sin(t), 1e-14);
    }
  }
}

TEST_F(Random, RandintIsTheUpperHalfOfAProduct) {
  __extension__ using Wide = unsigned __int128;
  for (const auto& [low, high] : {std::pair<Index, Index>{0, 10},
                                  {-3, 4},
                                  {Index{-1} << 62, Index{1} << 62},
                                  {std::numeric_limits<Index>::min(), std::numeric_limits<Index>::max()}}) {
    manual_seed(9);
    const auto values = randint(low, high, {1000}).to_vector<Index>();
    const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto above = static_cast<std::uint64_t>(static_cast<Wide>(word_at(9, i)) * range >> 64);
      ASSERT_EQ(values[i], static_cast<Index>(static_cast<std::uint64_t>(low) + above));
    }
  }
}

// RN-D1
TEST_F(Random, BitsDoNotDependOnTheThreads) {
  constexpr Index n = 1000003;
  const auto draw = [](int threads) {
    set_num_threads(threads);
    manual_seed(1);
    std::vector<std::vector<double>> all;
    all.push_back(randn(n).to_vector<double>());
    all.push_back(randn(n).to_vector<double>());
    all.push_back(rand(n, f64).to_vector<double>());
    all.push_back(randint(0, 1000, n).to_vector<double>());
    return all;
  };
  const auto one = draw(1);
  EXPECT_NE(one[0], one[1]);
  EXPECT_TRUE(one == draw(1));
  EXPECT_TRUE(one == draw(2));
  EXPECT_TRUE(one == draw(4));
}

TEST_F(Random, BothFloatTypesHaveTheSameValues) {
  const auto draw = [](auto&& make, DType dtype) {
    manual_seed(11);
    return make(Dims({1001}), dtype).template to_vector<double>();
  };
  const auto normal = draw(randn, f64), normal32 = draw(randn, f32), uniform = draw(rand, f64), uniform32 = draw(rand, f32);
  for (std::size_t i = 0; i < normal.size(); ++i) {
    EXPECT_EQ(static_cast<float>(normal[i]), normal32[i]);
    EXPECT_EQ(std::floor(uniform[i] * 0x1p24) * 0x1p-24, uniform32[i]);
  }
}

TEST_F(Random, UniformsNeverReachOneInF32) {
  // Numbers of seed 1 that rounding to nearest would turn into 1.
  for (std::uint64_t position : {38702312ull, 56277717ull, 87558399ull}) {
    ASSERT_EQ(static_cast<float>(uniform_at(1, position)), 1.0f);
    set_rng_state({1, position});
    EXPECT_EQ(rand({1}).item<float>(), 1 - 0x1p-24f);
  }
}

TEST_F(Random, MomentsAreThoseOfTheDistributions) {
  manual_seed(0);
  constexpr Index n = 400000;
  const double standard_error = 1 / std::sqrt(static_cast<double>(n));
  const auto z = randn(n, f64).to_vector<double>();
  double mean = 0, square = 0, third = 0, fourth = 0, neighbors = 0, beyond = 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double x = z[i];
    mean += x, square += x * x, third += x * x * x, fourth += x * x * x * x, neighbors += x * z[i ^ 1], beyond += std::abs(x) > 1.96 ? 1 : 0;
  }
  EXPECT_NEAR(mean / n, 0, 5 * standard_error);
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2) * standard_error);
  EXPECT_NEAR(third / n, 0, 5 * std::sqrt(15) * standard_error);
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96) * standard_error);
  EXPECT_NEAR(neighbors / n, 0, 5 * std::sqrt(2) * standard_error);
  EXPECT_NEAR(beyond / n, 0.05, 5 * std::sqrt(0.0475) * standard_error);

  // Kolmogorov and Smirnov's distance: beyond 1.95 standard errors once in a thousand seeds.
  auto u = rand(n, f64).to_vector<double>();
  std::sort(u.begin(), u.end());
  double distance = 0;
  for (std::size_t i = 0; i < u.size(); ++i) distance = std::max(distance, std::abs(u[i] - (static_cast<double>(i) + 0.5) / n));
  EXPECT_LT(distance, 1.95 * standard_error);

  std::vector<int> counts(7);
  for (Index x : randint(-3, 4, n).to_vector<Index>()) ++counts.at(static_cast<std::size_t>(x + 3));
  for (int count : counts) EXPECT_NEAR(count, n / 7.0, 5 * std::sqrt(n / 7.0));
}

TEST_F(Random, StateIsSavedAndRestored) {
  manual_seed(42);
  EXPECT_EQ(rng_state(), (RngState{42, 0}));
  randn({3});
  const RngState state = rng_state();
  EXPECT_EQ(state, (RngState{42, 4}));  // pairs
  const auto values = rand({5}).to_vector<float>();
  EXPECT_NE(rand({5}).to_vector<float>(), values);
  set_rng_state(state);
  EXPECT_EQ(rand({5}).to_vector<float>(), values);
}

TEST_F(Random, NothingDrawnChangesNothing) {
  manual_seed(7);
  EXPECT_EQ(randn({0, 5}).shape(), Dims({0, 5}));
  rand({3, 0});
  randint(0, 2, {0});
  EXPECT_EQ(rng_state(), (RngState{7, 0}));
  EXPECT_EQ(randn({}).dim(), 0);
}

TEST_F(Random, RefusesWhatCannotBeDrawn) {
  const RngState before = rng_state();
  EXPECT_THAT(error_of<DTypeError>([] { rand({2}, i64); }), HasSubstr("rand: takes f32 or f64: i64"));
  EXPECT_THAT(error_of<DTypeError>([] { randn({2}, boolean); }), HasSubstr("randn: takes f32 or f64: boolean"));
  EXPECT_THAT(error_of<ShapeError>([] { randn({2, -1}); }), HasSubstr("randn: a size is negative"));
  EXPECT_THAT(error_of<ShapeError>([] { randint(0, 2, {-1}); }), HasSubstr("randint: a size is negative"));
  EXPECT_EQ(error_of<IndexError>([] { randint(3, 3, {1}); }), "randint: nothing lies between low and high: low 3, high 3");
  EXPECT_EQ(rng_state(), before);
}

TEST_F(Random, ThreadsShareOneStream) {
  manual_seed(0);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::uint64_t>> begins(4);
  for (auto& mine : begins)
    threads.emplace_back([&mine] {
      for (int i = 0; i < 500; ++i) mine.push_back(detail::reserve_random(3).offset);
    });
  for (auto& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const auto& mine : begins) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 2000u);
  EXPECT_EQ(*all.rbegin(), 4 * 1999u);
  EXPECT_EQ(rng_state().offset, 4 * 2000u);
}

}  // namespace
}  // namespace heed
