#include "tails.h"

// Pointwise ops over all magnitudes and far into their tails: value, gradient and second derivative against formulas in long double, in units in the
// last place. What is a number there is one here: no NaN, no zero where the true value is not, infinite only beyond the largest number.

namespace heed::test {
namespace {

constexpr L pi = 3.14159265358979323846264338L, infinity = std::numeric_limits<L>::infinity();

/// Numbers of every magnitude in [low, high], and evenly spaced ones where functions bend and saturate.
template <class T>
std::vector<T> sweep(L low, L high) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> x;
  const auto add = [&](T v) {
    if (v >= low && v <= high) x.push_back(v);
  };
  std::mt19937_64 generator(11);
  std::uniform_real_distribution<double> mantissa(1, 2);
  for (int exponent = Limits::min_exponent - Limits::digits; exponent < Limits::max_exponent; ++exponent)
    for (int i = 0; i < 8; ++i) {
      const T v = static_cast<T>(std::ldexp(mantissa(generator), exponent));
      add(v), add(-v);
    }
  for (const double range : {1.0, 6.0, 16.0, 40.0, 112.0, 760.0})
    for (int i = 0; i <= 3000; ++i) add(static_cast<T>(range * (i / 1500.0 - 1)));
  return x;
}

struct Row {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
  std::function<Exact(L)> exact[3];  // value, first and second derivative
  L low, high;                       // arguments
  double limits[3];                  // of the errors of the three
};

L sigmoid_of(L x) { return 1 / (1 + std::exp(-x)); }
/// s (1 - s)
L bell_of(L x) { return 1 / (4 * std::cosh(x / 2) * std::cosh(x / 2)); }
L phi(L x) { return std::exp(-x * x / 2) / std::sqrt(2 * pi); }
L normal(L x) { return std::erfc(-x * std::sqrt(0.5L)) / 2; }
L cubic(L x) { return 2 * std::sqrt(2 / pi) * (x + 0.044715L * x * x * x); }
L cubic_slope(L x) { return 2 * std::sqrt(2 / pi) * (1 + 3 * 0.044715L * x * x); }
L cubic_bend(L x) { return 2 * std::sqrt(2 / pi) * 6 * 0.044715L * x; }
L cubic_loss(L x) { return std::abs(x) < 1e3L ? std::max(1.0L, std::abs(cubic(x)) / 4) : 1; }
/// A product in which 0 wins over infinity.
L times(L zero, L x) { return zero == 0 ? 0 : zero * x; }

const Row rows[] = {
    {"exp",
     [](const Tensor& x) { return exp(x); },
     {[](L x) { return std::exp(x); }, [](L x) { return std::exp(x); }, [](L x) { return std::exp(x); }},
     -infinity,
     infinity,
     {1.1, 1.1, 1.1}},
    {"log",
     [](const Tensor& x) { return log(x); },
     {[](L x) { return std::log(x); }, [](L x) { return 1 / x; }, [](L x) { return -1 / (x * x); }},
     0,
     infinity,
     {1, 0.51, 1.6}},
    {"log1p",
     [](const Tensor& x) { return log1p(x); },
     {[](L x) { return std::log1p(x); }, [](L x) { return 1 / (1 + x); }, [](L x) { return -1 / ((1 + x) * (1 + x)); }},
     -1,
     infinity,
     {1.5, 1.6, 3}},
    {"sqrt",
     [](const Tensor& x) { return sqrt(x); },
     {[](L x) { return std::sqrt(x); }, [](L x) { return 0.5L / std::sqrt(x); }, [](L x) { return -0.25L / (x * std::sqrt(x)); }},
     0,
     infinity,
     {0.51, 1.6, 4.5}},
    {"rsqrt",
     [](const Tensor& x) { return rsqrt(x); },
     {[](L x) { return 1 / std::sqrt(x); }, [](L x) { return -0.5L / (x * std::sqrt(x)); }, [](L x) { return 0.75L / (x * x * std::sqrt(x)); }},
     0,
     infinity,
     {1.6, 6, 10}},
    {"square",
     [](const Tensor& x) { return square(x); },
     {[](L x) { return x * x; }, [](L x) { return 2 * x; }, [](L) { return 2; }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"abs",
     [](const Tensor& x) { return abs(x); },
     {[](L x) { return std::abs(x); }, [](L x) { return static_cast<L>((x > 0) - (x < 0)); }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0, 0, 0}},
    {"x abs(x)",
     [](const Tensor& x) { return x * abs(x); },
     {[](L x) { return x * std::abs(x); }, [](L x) { return 2 * std::abs(x); }, [](L x) { return static_cast<L>(2 * ((x > 0) - (x < 0))); }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"relu",
     [](const Tensor& x) { return relu(x); },
     {[](L x) { return std::max(x, 0.0L); }, [](L x) { return static_cast<L>(x > 0); }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0, 0, 0}},
    {"clamp",
     [](const Tensor& x) { return clamp(x, -1e30, 2); },
     {[](L x) { return std::clamp(x, -1e30L, 2.0L); }, [](L x) { return static_cast<L>(x >= -1e30L && x <= 2); }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"maximum",
     [](const Tensor& x) { return maximum(x, -x) * x; },
     {[](L x) { return std::abs(x) * x; }, [](L x) { return 2 * std::abs(x); }, [](L x) { return static_cast<L>(2 * ((x > 0) - (x < 0))); }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"minimum",
     [](const Tensor& x) { return minimum(x, 0.7003) * 3; },
     {[](L x) { return 3 * std::min(x, 0.7003L); }, [](L x) { return x < 0.7003L ? 3 : 0; }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"where",
     [](const Tensor& x) { return where(gt(x, 0), square(x), x); },
     {[](L x) { return x > 0 ? x * x : x; }, [](L x) { return x > 0 ? 2 * x : 1; }, [](L x) { return x > 0 ? 2 : 0; }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"masked_fill",
     [](const Tensor& x) { return masked_fill(square(x), lt(x, 0), 5); },
     {[](L x) { return x < 0 ? 5 : x * x; }, [](L x) { return x < 0 ? 0 : 2 * x; }, [](L x) { return x < 0 ? 0 : 2; }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"tanh",
     [](const Tensor& x) { return tanh(x); },
     {[](L x) { return std::tanh(x); }, [](L x) { return 4 * bell_of(2 * x); }, [](L x) { return -8 * bell_of(2 * x) * std::tanh(x); }},
     -infinity,
     infinity,
     {1.6, 8, 10}},
    {"sigmoid",
     [](const Tensor& x) { return sigmoid(x); },
     {[](L x) { return sigmoid_of(x); }, bell_of, [](L x) { return -bell_of(x) * std::tanh(x / 2); }},
     -infinity,
     infinity,
     {2.5, 8, 10}},
    {"silu",
     [](const Tensor& x) { return silu(x); },
     {[](L x) { return x * sigmoid_of(x); }, [](L x) { return Exact(sigmoid_of(x) + x * bell_of(x), sigmoid_of(x) + std::abs(x) * bell_of(x)); },
      [](L x) { return Exact(bell_of(x) * (2 - x * std::tanh(x / 2)), bell_of(x) * (2 + x * std::tanh(x / 2))); }},
     -infinity,
     infinity,
     {3.5, 8, 16}},
    {"gelu",
     [](const Tensor& x) { return gelu(x); },
     {[](L x) { return x * normal(x); }, [](L x) { return Exact(normal(x) + x * phi(x), normal(x) + std::abs(x) * phi(x)); },
      [](L x) { return Exact(phi(x) * (2 - x * x), phi(x) * (2 + x * x)); }},
     -infinity,
     infinity,
     {8, 8, 10}},
    // What limits it is the rounding of the argument of exp, as large as that is; most of all where multiplication and addition are not fused.
    {"gelu by tanh",
     [](const Tensor& x) { return gelu(x, Gelu::tanh); },
     {[](L x) {
        const L y = x * sigmoid_of(cubic(x));
        return Exact(y, std::abs(y) * cubic_loss(x));
      },
      [](L x) {
        const L s = sigmoid_of(cubic(x)), last = x * bell_of(cubic(x)) * cubic_slope(x);
        return Exact(s + last, (s + std::abs(last)) * cubic_loss(x));
      },
      [](L x) {
        const L w1 = cubic_slope(x), last = x * w1 * w1 * std::tanh(cubic(x) / 2), first = 2 * w1 + x * cubic_bend(x), h = bell_of(cubic(x));
        return Exact(times(h, first - last), times(h, first + last) * cubic_loss(x));
      }},
     -infinity,
     infinity,
     {12, 12, 16}},
    {"-x + 3",
     [](const Tensor& x) { return -x + 3; },
     {[](L x) { return 3 - x; }, [](L) { return -1; }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"x / 7",
     [](const Tensor& x) { return x / 7; },
     {[](L x) { return x / 7; }, [](L) { return 1 / 7.0L; }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0.51, 0.51, 0}},
    {"3 / x",
     [](const Tensor& x) { return 3 / x; },
     {[](L x) { return 3 / x; }, [](L x) { return -3 / (x * x); }, [](L x) { return 6 / (x * x * x); }},
     0,
     infinity,
     {0.51, 1.6, 4}},
    {"-3 / -x",
     [](const Tensor& x) { return 3 / -x; },
     {[](L x) { return 3 / -x; }, [](L x) { return 3 / (x * x); }, [](L x) { return -6 / (x * x * x); }},
     1e-300L,
     infinity,
     {0.51, 1.6, 4}},
    {"x^0",
     [](const Tensor& x) { return pow(x, 0); },
     {[](L) { return 1; }, [](L) { return 0; }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0, 0, 0}},
    {"x^1",
     [](const Tensor& x) { return pow(x, 1); },
     {[](L x) { return x; }, [](L) { return 1; }, [](L) { return 0; }},
     -infinity,
     infinity,
     {0, 0, 0}},
    {"x^2",
     [](const Tensor& x) { return pow(x, 2); },
     {[](L x) { return x * x; }, [](L x) { return 2 * x; }, [](L) { return 2; }},
     -infinity,
     infinity,
     {0.51, 0, 0}},
    {"x^3",
     [](const Tensor& x) { return pow(x, 3); },
     {[](L x) { return x * x * x; }, [](L x) { return 3 * x * x; }, [](L x) { return 6 * x; }},
     -infinity,
     infinity,
     {1.6, 2, 1.1}},
    {"x^-1",
     [](const Tensor& x) { return pow(x, -1); },
     {[](L x) { return 1 / x; }, [](L x) { return -1 / (x * x); }, [](L x) { return 2 / (x * x * x); }},
     0,
     infinity,
     {0.51, 1.6, 2.6}},
    {"x^0.5",
     [](const Tensor& x) { return pow(x, 0.5); },
     {[](L x) { return std::sqrt(x); }, [](L x) { return 0.5L / std::sqrt(x); }, [](L x) { return -0.25L / (x * std::sqrt(x)); }},
     1e-25L,  // near the end of the range 1 / (x sqrt x) is infinite, a quarter of it not yet
     infinity,
     {0.51, 1.1, 2}},
    {"x^2.5",
     [](const Tensor& x) { return pow(x, 2.5); },
     {[](L x) { return x * x * std::sqrt(x); }, [](L x) { return 2.5L * x * std::sqrt(x); }, [](L x) { return 3.75L * std::sqrt(x); }},
     0,
     infinity,
     {1.1, 3, 3}},
    {"2.5^x",
     [](const Tensor& x) { return pow(2.5, x); },
     {[](L x) { return std::pow(2.5L, x); }, [](L x) { return std::pow(2.5L, x) * std::log(2.5L); },
      [](L x) { return std::pow(2.5L, x) * std::log(2.5L) * std::log(2.5L); }},
     -infinity,
     96,
     {1.1, 3, 4}},
};

template <class T>
void expect_close(const Row& row, const char* what, int order, const std::vector<T>& x, const std::vector<T>& got) {
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const double error = units(got[i], row.exact[order](static_cast<L>(x[i]))); error > worst) worst = error, at = i;
  EXPECT_LE(worst, row.limits[order]) << row.name << ", " << what << " at " << x[at] << " is " << got[at] << ", not "
                                      << row.exact[order](static_cast<L>(x[at])).value;
}

template <class T>
class Tails : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Tails, Floats);

TYPED_TEST(Tails, values_and_two_derivatives) {
  using T = TypeParam;
  for (const Row& row : rows) {
    const std::vector<T> at = sweep<T>(row.low, row.high);
    const Tensor x = leaf(from_vector(at, {static_cast<Index>(at.size())})), y = row.f(x);
    const Tensor plain = derivative(y, x, {.retain_graph = true}), first = derivative(y, x, {.create_graph = true});
    expect_close(row, "value", 0, at, y.template to_vector<T>());
    expect_close(row, "gradient", 1, at, plain.template to_vector<T>());
    expect_close(row, "recorded gradient", 1, at, first.template to_vector<T>());
    const Tensor second = derivative(first, x, {.create_graph = true});
    expect_close(row, "second derivative", 2, at, second.template to_vector<T>());
    expect_close(row, "second derivative", 2, at, derivative(first, x, {.retain_graph = true}).template to_vector<T>());
    const Tensor third = derivative(second, x, {});
    EXPECT_FALSE(any(isnan(third) & ne(x, 0)).item<bool>()) << row.name << ", third derivative";
  }
}

}  // namespace
}  // namespace heed::test
