#include <limits>

#include "support.h"

namespace heed {
namespace {

using test::values;

Tensor with_grad(const Tensor& g) {
  Tensor p = zeros(g.shape(), g.dtype()).requires_grad_();
  sum(p * g).backward();
  return p;
}

TEST(Clip, ScalesAllGradientsTogether) {
  Tensor a = with_grad(tensor({3, 0}, f64)), b = with_grad(tensor({{4}}, f64)), idle = zeros({2}).requires_grad_();
  EXPECT_EQ(nn::clip_grad_norm({a, b, idle}, 10), 5);
  EXPECT_EQ(values(a.grad()), (std::vector<double>{3, 0})) << "below the limit nothing changes";
  EXPECT_EQ(nn::clip_grad_norm({{"a", a}, {"b", b}}, 1), 5);
  const double factor = 1 / (5 + 1e-6);
  EXPECT_EQ(values(a.grad()), (std::vector<double>{3 * factor, 0}));
  EXPECT_EQ(values(b.grad()), std::vector<double>{4 * factor});
  EXPECT_FALSE(idle.grad().defined());
  EXPECT_EQ(nn::clip_grad_norm(std::vector<Tensor>{idle}, 1), 0);
}

TEST(Clip, CountsATensorOnce) {
  Tensor a = with_grad(tensor({3, 4}));
  EXPECT_EQ(nn::clip_grad_norm({a, a}, 2.5), 5);
  EXPECT_NEAR(values(a.grad())[1], 2, 1e-6);
}

TEST(Clip, TakesMixedDtypes) {
  Tensor a = with_grad(tensor({3.0})), b = with_grad(tensor({4.0}, f64));
  EXPECT_EQ(nn::clip_grad_norm({a, b}, 1), 5);
  EXPECT_EQ(a.grad().dtype(), f32);
  EXPECT_NEAR(values(a.grad())[0], 0.6, 1e-6);
}

TEST(Clip, DoesNotOverflowOrUnderflow) {
  const auto relative = [](double got, double want) { return std::fabs(got / want - 1); };
  for (double scale : {1e200, 1e-200, 1e308, 1e-305}) {
    Tensor p = with_grad(tensor({0.3, 0.4}, f64) * scale);
    EXPECT_LT(relative(nn::clip_grad_norm({p}, 1), 0.5 * scale), 1e-15) << scale;
  }
  Tensor small = with_grad(full({4}, std::numeric_limits<double>::denorm_min(), f64));
  EXPECT_EQ(nn::clip_grad_norm({small}, 1), 2 * std::numeric_limits<double>::denorm_min());
  Tensor narrow = with_grad(full({4}, 3e38));
  EXPECT_LT(relative(nn::clip_grad_norm({narrow}, 1), 6e38), 1e-6);
  EXPECT_NEAR(values(narrow.grad())[0], 0.5, 1e-6);
  Tensor wide = with_grad(full({10000}, 3e38));  // the factor is below the normal numbers
  EXPECT_LT(relative(nn::clip_grad_norm({wide}, 1), 3e40), 1e-6);
  EXPECT_LT(relative(values(wide.grad())[0], 0.01), 1e-6);
  Tensor huge = with_grad(full({100}, 1e308, f64));
  EXPECT_TRUE(std::isinf(nn::clip_grad_norm({huge}, 1))) << "more than a double holds";
  EXPECT_EQ(values(huge.grad())[0], 1e308);
}

TEST(Clip, LeavesGradientsAloneWhenTheNormIsNotFinite) {
  for (double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
    for (DType dtype : {f32, f64}) {
      Tensor a = with_grad(tensor({1, 2}, dtype));
      Tensor b = with_grad(full({1}, bad, dtype));
      const double norm = nn::clip_grad_norm({a, b}, 1);
      EXPECT_TRUE(std::isnan(bad) ? std::isnan(norm) : std::isinf(norm) && norm > 0);
      EXPECT_EQ(values(a.grad()), (std::vector<double>{1, 2}));
    }
}

TEST(Clip, ChecksTheLimit) {
  Tensor a = with_grad(tensor({3, 4}));
  EXPECT_THROW(nn::clip_grad_norm({a}, -1), Error);
  EXPECT_THROW(nn::clip_grad_norm({a}, std::nan("")), Error);
  EXPECT_EQ(nn::clip_grad_norm({a}, HUGE_VAL), 5);
  EXPECT_EQ(values(a.grad()), (std::vector<double>{3, 4}));
  EXPECT_EQ(nn::clip_grad_norm({a}, 0), 5);
  EXPECT_EQ(values(a.grad()), (std::vector<double>{0, 0}));
}

TEST(Clip, HasTheSameBitsForEveryNumberOfThreads) {
  manual_seed(6);
  const Tensor g = randn({1000003});
  double first = 0;
  std::vector<double> clipped;
  for (int threads : {1, 2, 4}) {
    const test::Threads scope(threads);
    Tensor p = with_grad(g);
    const double norm = nn::clip_grad_norm({p}, 1);
    if (threads == 1) {
      first = norm;
      clipped = values(p.grad());
      EXPECT_NEAR(norm, heed::norm(g.to(f64)).item<double>(), 1e-9);
    }
    EXPECT_EQ(norm, first) << threads;
    EXPECT_EQ(values(p.grad()), clipped) << threads;
  }
}

TEST(Clip, WritesOnlyTheGradientsOfItsParameters) {
  Tensor x = tensor({2, 3}, f64).requires_grad_(), y = tensor({5, 7}, f64).requires_grad_();
  sum(x + y).backward();
  nn::clip_grad_norm({x}, 0.5);
  EXPECT_EQ(values(y.grad()), (std::vector<double>{1, 1}));
  EXPECT_LT(values(x.grad())[0], 0.36);
}

}  // namespace
}  // namespace heed
