// The functions of math-inl.h, through the kernels that apply them: error over all magnitudes, and special values.

#include <heed/tensor/kernels/elementwise.h>

#include <functional>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

template <class T>
class Math : public testing::Test {
 public:
  using Limits = std::numeric_limits<T>;

  static std::vector<T> apply(Unary op, const std::vector<T>& x) {
    const Index n = static_cast<Index>(x.size());
    std::vector<T> y(x.size());
    unary<T>(op, y.data(), {x.data(), {1}}, {n});
    return y;
  }

  /// Numbers of every exponent in [low, high], random bits behind; and evenly spaced ones where functions bend.
  static std::vector<T> sweep(double low, double high) {
    std::vector<T> x;
    const auto add = [&](T v) {
      if (v >= low && v <= high) x.push_back(v);
    };
    std::mt19937_64 generator(7);
    std::uniform_real_distribution<double> mantissa(1, 2);
    for (int exponent = Limits::min_exponent - Limits::digits; exponent < Limits::max_exponent; ++exponent)
      for (int i = 0; i < 60; ++i) {
        const T v = static_cast<T>(std::ldexp(mantissa(generator), exponent));
        add(v), add(-v);
      }
    for (const double range : {0.7, 2.0, 12.0, 110.0, 760.0})
      for (int i = 0; i <= 20000; ++i) add(static_cast<T>(range * (i / 10000.0 - 1)));
    return x;
  }

  static void expect_close(const char* name, Unary op, const std::function<long double(long double)>& exact, double low, double high, double limit) {
    const std::vector<T> x = sweep(low, high);
    test::for_each_target([&] {
      const std::vector<T> y = apply(op, x);
      double worst = 0;
      T where = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (const double error = test::ulps(y[i], exact(x[i])); error > worst) worst = error, where = x[i];
      EXPECT_LE(worst, limit) << name << " at " << where;
      testing::Test::RecordProperty(std::string(name) + "_ulps", std::to_string(worst));
    });
  }

  /// Equal values, signs of zeros included; NaN equals NaN.
  static void expect_exact(Unary op, const std::vector<std::pair<double, double>>& pairs) {
    test::for_each_target([&] {
      for (const auto& [x, want] : pairs) {
        // Among other elements, and as the last of a row: both loops of the kernel.
        for (const std::size_t n : {std::size_t{1}, std::size_t{19}}) {
          std::vector<T> row(n, T{1});
          row.back() = row.front() = static_cast<T>(x);
          const std::vector<T> y = apply(op, row);
          for (const T got : {y.front(), y.back()}) {
            if (std::isnan(want))
              EXPECT_TRUE(std::isnan(got)) << x << " gave " << got;
            else
              EXPECT_TRUE(got == static_cast<T>(want) && std::signbit(got) == std::signbit(want)) << x << " gave " << got << ", not " << want;
          }
        }
      }
    });
  }
};

using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Math, Floats);

long double sigmoid_of(long double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

TYPED_TEST(Math, Exp) {
  const bool f32 = sizeof(TypeParam) == 4;
  const double max = static_cast<double>(std::numeric_limits<TypeParam>::max());
  this->expect_close(
      "exp", Unary::exp, [](long double x) { return std::exp(x); }, -max, max, 1.0);
  this->expect_exact(Unary::exp, {{0, 1},
                                  {-0.0, 1},
                                  {-infinity, 0},
                                  {infinity, infinity},
                                  {nan, nan},
                                  {f32 ? 88.8 : 709.8, infinity},
                                  {f32 ? -104 : -745.2, 0},
                                  {max, infinity},
                                  {-max, 0}});
  // The smallest results are subnormal, not flushed to 0.
  EXPECT_GT(this->apply(Unary::exp, {TypeParam(f32 ? -103 : -744)})[0], 0);
}

TYPED_TEST(Math, Log) {
  const double max = static_cast<double>(std::numeric_limits<TypeParam>::max());
  this->expect_close(
      "log", Unary::log, [](long double x) { return std::log(x); }, 0, max, 0.9);
  this->expect_exact(Unary::log, {{1, 0},
                                  {0, -infinity},
                                  {-0.0, -infinity},
                                  {infinity, infinity},
                                  {-1, nan},
                                  {-infinity, nan},
                                  {nan, nan},
                                  {-static_cast<double>(std::numeric_limits<TypeParam>::denorm_min()), nan}});
}

TYPED_TEST(Math, Log1p) {
  const double max = static_cast<double>(std::numeric_limits<TypeParam>::max()),
               tiny = static_cast<double>(std::numeric_limits<TypeParam>::denorm_min());
  this->expect_close(
      "log1p", Unary::log1p, [](long double x) { return std::log1p(x); }, -1, max, 1.5);
  this->expect_exact(
      Unary::log1p,
      {{0, 0}, {-0.0, -0.0}, {-1, -infinity}, {infinity, infinity}, {-2, nan}, {-infinity, nan}, {nan, nan}, {tiny, tiny}, {-tiny, -tiny}});
}

TYPED_TEST(Math, Tanh) {
  const double max = static_cast<double>(std::numeric_limits<TypeParam>::max()),
               tiny = static_cast<double>(std::numeric_limits<TypeParam>::denorm_min());
  this->expect_close(
      "tanh", Unary::tanh, [](long double x) { return std::tanh(x); }, -max, max, 1.6);
  this->expect_exact(Unary::tanh, {{0, 0}, {-0.0, -0.0}, {infinity, 1}, {-infinity, -1}, {nan, nan}, {max, 1}, {-max, -1}, {tiny, tiny}});
}

TYPED_TEST(Math, Sigmoid) {
  const double max = static_cast<double>(std::numeric_limits<TypeParam>::max());
  this->expect_close("sigmoid", Unary::sigmoid, sigmoid_of, -max, max, 2.5);
  this->expect_exact(Unary::sigmoid, {{0, 0.5}, {-0.0, 0.5}, {infinity, 1}, {-infinity, 0}, {nan, nan}, {max, 1}, {-max, 0}});
}

TYPED_TEST(Math, Bells) {
  const double max = static_cast<double>(std::numeric_limits<TypeParam>::max());
  const auto cubic = [](long double x) { return 2 * std::sqrt(2 / 3.14159265358979323846264338L) * (x + 0.044715L * x * x * x); };
  // Down to where the square is 0.
  const double normal = sizeof(TypeParam) == 4 ? 14.4 : 38.6;
  this->expect_close(
      "sech", Unary::sech, [](long double x) { return 1 / std::cosh(x); }, -max, max, 3);
  this->expect_close(
      "gelu_erf_bell", Unary::gelu_erf_bell, [](long double x) { return std::exp(-x * x / 4); }, -normal, normal, 2);
  this->expect_close(
      "gelu_tanh_bell", Unary::gelu_tanh_bell, [=](long double x) { return 1 / (2 * std::cosh(cubic(x) / 2)); }, -2, 2, 6);
  this->expect_exact(Unary::sech, {{0, 1}, {infinity, 0}, {-infinity, 0}, {nan, nan}});
  for (const Unary op : {Unary::gelu_erf_bell, Unary::gelu_tanh_bell}) {
    this->expect_exact(op, {{0, op == Unary::gelu_erf_bell ? 1 : 0.5}, {nan, nan}});
    for (const double x : {-infinity, -1000.0, 100.0, infinity}) {
      const TypeParam far = this->apply(op, {static_cast<TypeParam>(x)})[0];
      EXPECT_EQ(far * far, 0) << x;
    }
  }
}

TYPED_TEST(Math, GeluAndSilu) {
  // To a few units of the last place also where 1 + erf and 1 + tanh have long cancelled to 0, and down to the smallest number. What limits gelu_tanh
  // is the rounding of the argument of exp, as large as that is.
  const double max = static_cast<double>(std::numeric_limits<TypeParam>::max());
  this->expect_close(
      "gelu_erf", Unary::gelu_erf, [](long double x) { return x / 2 * std::erfc(-x * std::sqrt(0.5L)); }, -max, max, 8);
  const auto gelu_tanh = [](long double x) { return x * sigmoid_of(2 * std::sqrt(2 / 3.14159265358979323846264338L) * (x + 0.044715L * x * x * x)); };
  this->expect_close("gelu_tanh", Unary::gelu_tanh, gelu_tanh, -2, max, 10);
  this->expect_close("gelu_tanh", Unary::gelu_tanh, gelu_tanh, -max, -2, sizeof(TypeParam) == 4 ? 200 : 1400);
  this->expect_close(
      "silu", Unary::silu, [](long double x) { return x * sigmoid_of(x); }, -max, max, 3.5);
  for (const Unary op : {Unary::gelu_erf, Unary::gelu_tanh, Unary::silu})
    this->expect_exact(op, {{0, 0}, {-0.0, -0.0}, {infinity, infinity}, {-infinity, -0.0}, {nan, nan}, {1e30, 1e30}, {-1e30, -0.0}});
}

TYPED_TEST(Math, SimpleOnes) {
  const double tiny = static_cast<double>(std::numeric_limits<TypeParam>::denorm_min());
  this->expect_exact(Unary::neg, {{1, -1}, {0, -0.0}, {-infinity, infinity}, {nan, nan}});
  this->expect_exact(Unary::abs, {{-1, 1}, {-0.0, 0}, {-infinity, infinity}, {nan, nan}});
  this->expect_exact(Unary::sign, {{-3, -1}, {tiny, 1}, {-tiny, -1}, {0, 0}, {-0.0, -0.0}, {infinity, 1}, {-infinity, -1}, {nan, nan}});
  this->expect_exact(Unary::relu, {{-3, 0}, {3, 3}, {0, 0}, {-infinity, 0}, {infinity, infinity}, {nan, nan}});
  this->expect_exact(Unary::sqrt, {{4, 2}, {0, 0}, {-1, nan}, {infinity, infinity}, {nan, nan}});
  this->expect_exact(Unary::rsqrt, {{4, 0.5}, {0, infinity}, {-1, nan}, {infinity, 0}, {nan, nan}});
  this->expect_exact(Unary::square, {{-3, 9}, {infinity, infinity}, {nan, nan}});
}

TYPED_TEST(Math, ElementsDoNotDependOnTheirNeighbors) {
  for (const Unary op : {Unary::exp, Unary::log1p, Unary::tanh, Unary::gelu_erf}) {
    test::for_each_target([&] {
      const std::vector<TypeParam> x = test::random_values<TypeParam>(67, 0, 3, 5), whole = this->apply(op, x);
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(this->apply(op, {x[i]})[0], whole[i]);
    });
  }
}

}  // namespace
}  // namespace heed::kernels
