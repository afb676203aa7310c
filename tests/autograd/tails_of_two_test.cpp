#include "tails.h"

// Arithmetic and powers over all pairs of magnitudes: values and all derivatives up to the second, as tails_test.cpp does it.

namespace heed::test {
namespace {

struct PairRow {
  const char* name;
  std::function<Tensor(const Tensor&, const Tensor&)> f;
  std::function<Exact(L, L)> exact[6];  // value; derivatives in a; b; a, a; a, b; b, b
  std::vector<double> exponents;        // b of a power; if empty, numbers of all magnitudes
  double limits[6];
};

template <class T>
bool is_normal(L x) {
  return std::abs(x) < static_cast<L>(std::numeric_limits<T>::max()) && std::abs(x) > static_cast<L>(std::numeric_limits<T>::min());
}

/// In second derivatives of a^b, the rounding of b - 1 counts as many times as log a is large.
L exponent_loss(L a) { return std::max(1.0L, std::abs(std::log(a))); }

const PairRow pair_rows[] = {
    {"a * b",
     [](const Tensor& a, const Tensor& b) { return a * b; },
     {[](L a, L b) { return a * b; }, [](L, L b) { return b; }, [](L a, L) { return a; }, [](L, L) { return 0; }, [](L, L) { return 1; },
      [](L, L) { return 0; }},
     {},
     {0.51, 0, 0, 0, 0, 0}},
    {"a / b",
     [](const Tensor& a, const Tensor& b) { return a / b; },
     {[](L a, L b) { return a / b; }, [](L, L b) { return 1 / b; }, [](L a, L b) { return -a / (b * b); }, [](L, L) { return 0; },
      [](L, L b) { return -1 / (b * b); }, [](L a, L b) { return 2 * a / (b * b * b); }},
     {},
     {0.51, 0.51, 1.6, 0, 1.6, 4}},
    {"a^b",
     [](const Tensor& a, const Tensor& b) { return pow(a, b); },
     {[](L a, L b) { return std::pow(a, b); }, [](L a, L b) { return b * std::pow(a, b - 1); }, [](L a, L b) { return std::pow(a, b) * std::log(a); },
      [](L a, L b) {
        const L y = b * (b - 1) * std::pow(a, b - 2);
        return Exact(y, std::abs(y) * exponent_loss(a));
      },
      [](L a, L b) {
        const L p = std::pow(a, b - 1);
        return Exact(p * (1 + b * std::log(a)), p * (1 + std::abs(b * std::log(a))) * exponent_loss(a));
      },
      [](L a, L b) { return std::pow(a, b) * std::log(a) * std::log(a); }},
     {0, 1, 2, 3, -1, 0.5, 0.3, -0.7, 1 / 3., 1.9, -2.2, 1e-3, 12.3, -40},
     {1.1, 2, 3, 4, 4, 4}},
};

template <class T>
class TailsOfTwo : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(TailsOfTwo, Floats);

TYPED_TEST(TailsOfTwo, values_and_two_derivatives) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  for (const PairRow& row : pair_rows) {
    std::vector<T> from, to;
    std::mt19937_64 generator(12);
    std::uniform_real_distribution<double> mantissa(1, 2);
    const int step = sizeof(T) == 4 ? 5 : 37;
    const auto next = [&](int exponent) { return static_cast<T>(std::ldexp(mantissa(generator), exponent)); };
    for (int i = Limits::min_exponent - Limits::digits; i < Limits::max_exponent; i += step) {
      if (row.exponents.empty())
        for (int j = Limits::min_exponent - Limits::digits; j < Limits::max_exponent; j += step)
          from.insert(from.end(), {next(i), -next(i), next(i)}), to.insert(to.end(), {next(j), next(j), -next(j)});
      else
        for (const double exponent : row.exponents) from.push_back(next(i)), to.push_back(static_cast<T>(exponent));
    }
    const Index n = static_cast<Index>(from.size());
    const Tensor a = leaf(from_vector(from, {n})), b = leaf(from_vector(to, {n})), y = row.f(a, b);
    const GradOptions recorded{.create_graph = true}, plain{.retain_graph = true};
    const Tensor da = derivative(y, a, recorded), db = derivative(y, b, recorded);
    const std::vector<std::pair<int, Tensor>> results = {{0, y},
                                                         {1, da},
                                                         {2, db},
                                                         {1, derivative(y, a, plain)},
                                                         {2, derivative(y, b, plain)},
                                                         {3, derivative(da, a, plain)},
                                                         {4, derivative(da, b, plain)},
                                                         {4, derivative(db, a, plain)},
                                                         {5, derivative(db, b, plain)}};
    for (std::size_t k = 0; k < results.size(); ++k) {
      const auto& [part, tensor] = results[k];
      const std::vector<T> got = tensor.template to_vector<T>();
      double worst = 0;
      std::size_t at = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const L u = static_cast<L>(from[i]), v = static_cast<L>(to[i]);
        // What is made of a value or of a first derivative is as good as that is.
        const bool first_are_normal = row.exponents.empty() || (is_normal<T>(std::pow(u, v - 1)) && is_normal<T>(std::pow(u, v - 2)));
        if (part >= 2 && !(is_normal<T>(row.exact[0](u, v).value) && first_are_normal)) continue;
        if (const double error = units(got[i], row.exact[part](u, v)); error > worst) worst = error, at = i;
      }
      EXPECT_LE(worst, row.limits[part]) << row.name << ", part " << part << ", result " << k << " at " << from[at] << ", " << to[at] << " is "
                                         << got[at] << ", not " << row.exact[part](static_cast<L>(from[at]), static_cast<L>(to[at])).value;
    }
  }
}

}  // namespace
}  // namespace heed::test
