#include <limits>

#include "support.h"

// Rotary and sinusoidal positions against the plain formulas, their gradients, and what is refused.

namespace heed {
namespace {

using test::message_of;
using test::near;
using test::values;

/// Pair by pair, with loops.
std::vector<double> turned(const Tensor& x, Index offset, double base, bool neighbors) {
  const Index T = x.size(-2), d = x.size(-1);
  std::vector<double> v = values(x), out(v.size());
  for (std::size_t row = 0; row < v.size() / static_cast<std::size_t>(d); ++row)
    for (Index i = 0; i < d / 2; ++i) {
      const double t = static_cast<double>(static_cast<Index>(row) % T + offset),
                   angle = t / std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(d));
      const auto at = [&](Index j) { return row * static_cast<std::size_t>(d) + static_cast<std::size_t>(j); };
      const std::size_t a = at(neighbors ? 2 * i : i), b = at(neighbors ? 2 * i + 1 : i + d / 2);
      out[a] = v[a] * std::cos(angle) - v[b] * std::sin(angle);
      out[b] = v[a] * std::sin(angle) + v[b] * std::cos(angle);
    }
  return out;
}

TEST(Rotary, IsThePlainFormula) {
  manual_seed(1);
  for (const Dims& shape : {Dims{5, 6}, Dims{2, 3, 5, 8}, Dims{4, 1, 2}})
    for (const bool neighbors : {true, false})
      for (const Index offset : {0, 7}) {
        const Tensor x = randn(shape, f64);
        const nn::RotaryOptions options{.offset = offset, .base = 500, .pairs = neighbors ? nn::RotaryPairs::neighbors : nn::RotaryPairs::halves};
        const Tensor want = from_vector(turned(x, offset, 500, neighbors), shape);
        EXPECT_TRUE(near(nn::rotary(x, options), want, 1e-13));
        EXPECT_TRUE(near(nn::rotary(x.to(f32), options), want, 2e-6));
      }
  const Tensor x = tensor({{1, 2, 3, 4}}, f64);
  EXPECT_EQ(values(nn::rotary(x)), values(x)) << "position 0 does not turn";
  const Tensor y = nn::rotary(tensor({{0, 0, 0, 0}, {1, 0, 1, 0}}, f64));
  EXPECT_TRUE(near(y[1], tensor({std::cos(1.0), std::sin(1.0), std::cos(0.01), std::sin(0.01)}, f64), 1e-14));
}

TEST(Rotary, MakesProductsDependOnDistanceAlone) {
  const Tensor q = randn({1, 8}, f64), k = randn({1, 8}, f64);
  const auto score = [&](Index i, Index j) { return sum(nn::rotary(q, {.offset = i}) * nn::rotary(k, {.offset = j})).item<double>(); };
  EXPECT_NEAR(score(5, 3), score(105, 103), 1e-10);
  EXPECT_GT(std::fabs(score(5, 3) - score(5, 2)), 1e-6);
  EXPECT_NEAR(norm(nn::rotary(q, {.offset = 9})).item<double>(), norm(q).item<double>(), 1e-12);
}

TEST(Rotary, HasGradients) {
  for (const nn::RotaryPairs pairs : {nn::RotaryPairs::neighbors, nn::RotaryPairs::halves}) {
    Tensor x = randn({2, 3, 4}, f64).requires_grad_();
    const auto turn = [&] { return nn::rotary(x, {.offset = 2, .pairs = pairs}); };
    const GradcheckReport report = gradcheck(turn, {{"x", x}});
    EXPECT_TRUE(report.ok) << report.message;
    EXPECT_TRUE(gradgradcheck([&] { return square(turn()); }, {{"x", x}}).ok);
  }
}

/// One step after a cache of n is position n.
TEST(Rotary, GoesOnAfterACache) {
  const Tensor x = randn({2, 2, 9, 4}, f64);
  EXPECT_TRUE(near(nn::rotary(slice(x, 2, 6, 9), {.offset = 6}), slice(nn::rotary(x), 2, 6, 9), 1e-15));
}

TEST(Rotary, Refuses) {
  EXPECT_NE(message_of<ShapeError>([] { nn::rotary(zeros({3, 5})); }).find("(3, 5)"), std::string::npos);
  EXPECT_THROW(nn::rotary(zeros({4})), ShapeError);
  EXPECT_THROW(nn::rotary(zeros({3, 4}, i64)), DTypeError);
  EXPECT_THROW(nn::rotary(zeros({3, 4}), {.base = 0}), Error);
  EXPECT_EQ(nn::rotary(zeros({0, 4})).shape(), (Dims{0, 4}));
  EXPECT_EQ(nn::rotary(zeros({3, 0})).shape(), (Dims{3, 0}));
}

/// Up to where double holds every whole number; beyond, two neighbors would be one.
TEST(Positions, BeyondWhatDoubleHoldsAreRefused) {
  constexpr Index limit = Index{1} << 53, most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min();
  const Tensor x = ones({2, 2}, f64);
  const auto refused = [&](Index offset) {
    const bool first = !message_of<Error>([&] { nn::rotary(x, {.offset = offset}); }).empty();
    EXPECT_EQ(!message_of<Error>([&] { nn::sinusoidal_positions(2, 2, f64, offset); }).empty(), first) << offset;
    return first;
  };
  for (const Index offset : {limit - 2, -limit, Index{0}}) EXPECT_FALSE(refused(offset)) << offset;
  for (const Index offset : {limit - 1, limit, -limit - 1, most, most - 1, least}) EXPECT_TRUE(refused(offset)) << offset;
  EXPECT_EQ(message_of<Error>([&] {
              nn::rotary(x, {.offset = limit}, {"run.cpp", 7});
            }),
            "rotary: positions beyond 2^53: offset 9007199254740992, T=2 (called at run.cpp:7)");
  EXPECT_NE(nn::sinusoidal_positions(2, 2, f64, limit - 2)[0][0].item<double>(), nn::sinusoidal_positions(2, 2, f64, limit - 2)[1][0].item<double>());
  const nn::MultiHeadAttention turned(4, 1, {.rotary = nn::RotaryOptions{.offset = most}});
  EXPECT_NE(message_of<Error>([&] { turned(ones({1, 2, 4}), Mask::causal().at(5)); }), "");
}

TEST(Sinusoidal, IsThePlainFormula) {
  for (const Index d : {8, 7, 1})
    for (const Index offset : {0, 11}) {
      const Tensor p = nn::sinusoidal_positions(5, d, f64, offset);
      ASSERT_EQ(p.shape(), (Dims{5, d}));
      EXPECT_FALSE(p.requires_grad());
      for (Index t = 0; t < 5; ++t)
        for (Index j = 0; j < d; ++j) {
          const double angle = static_cast<double>(t + offset) / std::pow(10000.0, static_cast<double>(j - j % 2) / static_cast<double>(d));
          EXPECT_NEAR(p[t][j].item<double>(), j % 2 == 0 ? std::sin(angle) : std::cos(angle), 1e-13) << t << ", " << j << " of " << d;
        }
    }
  EXPECT_EQ(nn::sinusoidal_positions(3, 4).dtype(), f32);
  Tensor x = randn({2, 5, 6}, f64).requires_grad_();
  sum(x + nn::sinusoidal_positions(5, 6, f64)).backward();
  EXPECT_EQ(values(x.grad()), std::vector<double>(60, 1));
  EXPECT_THROW(nn::sinusoidal_positions(-1, 4), ShapeError);
  EXPECT_THROW(nn::sinusoidal_positions(1, 4, i64), DTypeError);
}

}  // namespace
}  // namespace heed
