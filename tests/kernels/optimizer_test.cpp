#include <heed/tensor/kernels/optimizer.h>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;

template <class T>
class Optimizer : public testing::Test {
 public:
  static constexpr double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-9;
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Optimizer, Floats);

TYPED_TEST(Optimizer, SgdAgainstTheFormula) {
  using T = TypeParam;
  test::for_each_target([&] {
    for (const Index n : {0, 1, 5, 16, 37, 100})
      for (int kind = 0; kind < 8; ++kind) {
        const bool nesterov = kind & 1, with_momentum = kind & 2, with_decay = kind & 4;
        SgdStep step{0.1, with_momentum ? 0.9 : 0, with_decay ? 0.5 : 0, nesterov, true};
        Block<T> p = test::random_block<T>(n, -1, 1, 1), buffer = test::random_block<T>(n, 50, 60, 2);  // the first step overwrites it
        std::vector<double> want_p(p.begin(), p.end()), want_buffer(static_cast<std::size_t>(n));
        for (unsigned t = 0; t < 4; ++t) {
          const Block<T> g = test::random_block<T>(n, -1, 1, 3 + t);
          step.first = t == 0;
          sgd(p.data(), g.data(), with_momentum ? buffer.data() : nullptr, n, step);
          for (std::size_t i = 0; i < want_p.size(); ++i) {
            const double gradient = static_cast<double>(g[static_cast<Index>(i)]) + step.weight_decay * want_p[i];
            want_buffer[i] = step.first ? gradient : step.momentum * want_buffer[i] + gradient;
            want_p[i] -= step.lr * (!with_momentum ? gradient : nesterov ? gradient + step.momentum * want_buffer[i] : want_buffer[i]);
            ASSERT_NEAR(p[static_cast<Index>(i)], want_p[i], this->tolerance);
            ASSERT_NEAR(with_momentum ? static_cast<double>(buffer[static_cast<Index>(i)]) : want_buffer[i], want_buffer[i], this->tolerance * 4);
          }
        }
      }
  });
}

TYPED_TEST(Optimizer, AdamAgainstTheFormula) {
  using T = TypeParam;
  test::for_each_target([&] {
    for (const Index n : {0, 1, 5, 16, 37, 100})
      for (const bool decoupled : {false, true}) {
        AdamStep step{0.01, 0.9, 0.999, 1e-8, 0.1, decoupled, 0};
        Block<T> p = test::random_block<T>(n, -1, 1, 1), m(n), v(n);
        std::vector<double> want(p.begin(), p.end()), want_m(want.size()), want_v(want.size());
        for (unsigned t = 1; t <= 5; ++t) {
          const Block<T> g = test::random_block<T>(n, 0.1, 1, 3 + t);
          step.step = t;
          adam(p.data(), g.data(), m.data(), v.data(), n, step);
          for (std::size_t i = 0; i < want.size(); ++i) {
            double gradient = static_cast<double>(g[static_cast<Index>(i)]);
            if (decoupled)
              want[i] -= step.lr * step.weight_decay * want[i];
            else
              gradient += step.weight_decay * want[i];
            want_m[i] = step.beta1 * want_m[i] + (1 - step.beta1) * gradient;
            want_v[i] = step.beta2 * want_v[i] + (1 - step.beta2) * gradient * gradient;
            want[i] -= step.lr * want_m[i] / (1 - std::pow(step.beta1, t)) / (std::sqrt(want_v[i] / (1 - std::pow(step.beta2, t))) + step.eps);
            ASSERT_NEAR(p[static_cast<Index>(i)], want[i], this->tolerance);
          }
        }
      }
  });
}

TYPED_TEST(Optimizer, AdamWhereSquaresOverflow) {
  using T = TypeParam;
  const bool single = sizeof(T) == 4;
  const T fits = static_cast<T>(single ? 1e20 : 1e155), does_not = static_cast<T>(single ? 1e22 : 1e157);  // a thousandth of the square
  const Index n = 37;
  test::for_each_target([&] {
    Block<T> p = test::random_block<T>(n, 1, 2, 1), m(n), v(n), g = test::random_block<T>(n, 0.1, 1, 2);
    Block<T> p_small = p, m_small(n), v_small(n), g_small = g;
    for (Index i : {3, 36}) g[i] = -fits;
    g[20] = does_not;
    for (double t : {1.0, 2.0, 3.0}) {
      const AdamStep step{0.1, 0.9, 0.999, 1e-8, 0, true, t};
      adam(p.data(), g.data(), m.data(), v.data(), n, step);
      adam(p_small.data(), g_small.data(), m_small.data(), v_small.data(), n, step);
    }
    for (Index i = 0; i < n; ++i) {
      if (i == 3 || i == 36) {
        EXPECT_NEAR(p[i], p_small[i] + static_cast<T>(0.6), 1e-5) << i;  // as g, but upwards
        EXPECT_TRUE(std::isfinite(v[i]));
      } else if (i == 20) {
        EXPECT_TRUE(std::isnan(p[i])) << p[i];
        EXPECT_FALSE(std::isfinite(v[i]));
      } else {
        EXPECT_EQ(p[i], p_small[i]) << i;
      }
    }
  });
}

TYPED_TEST(Optimizer, DecoupledDecay) {
  using T = TypeParam;
  const auto run = [](bool decoupled, T g) {
    std::vector<double> out;
    T p = 2, m = 0, v = 0;
    for (const double t : {1.0, 2.0}) {
      adam(&p, &g, &m, &v, 1, {0.1, 0.9, 0.999, 1e-8, 0.1, decoupled, t});
      out.push_back(static_cast<double>(p));
    }
    return out;
  };
  test::for_each_target([&] {
    const auto expect = [&](const std::vector<double>& got, double first, double second) {
      EXPECT_NEAR(got[0], first, this->tolerance);
      EXPECT_NEAR(got[1], second, this->tolerance);
    };
    expect(run(true, T(.5)), 1.880000002, 1.76120000398);
    expect(run(false, T(.5)), 1.90000000143, 1.80004009436);
    expect(run(true, 0), 1.98, 1.9602);
  });
}

TYPED_TEST(Optimizer, DecayWithoutMomentum) {
  using T = TypeParam;
  T p = 1, g = 0;
  sgd<T>(&p, &g, nullptr, 1, {0.1, 0, 0.5, false, true});
  EXPECT_NEAR(p, .95, this->tolerance);
  T buffer = 0;
  p = 1, g = 1;
  for (const double want : {.9, .71, .439}) {
    sgd<T>(&p, &g, &buffer, 1, {0.1, 0.9, 0, false, want == .9});
    EXPECT_NEAR(p, want, this->tolerance);
  }
}

TYPED_TEST(Optimizer, SameBitsForAllThreadCounts) {
  using T = TypeParam;
  const Index n = 100003;
  const Block<T> start = test::random_block<T>(n, -1, 1, 1), g = test::random_block<T>(n, -1, 1, 2);
  test::expect_same_bits_for_all_thread_counts([&] {
    Block<T> p = start, m(n), v(n);
    adam(p.data(), g.data(), m.data(), v.data(), n, {0.01, 0.9, 0.999, 1e-8, 0.1, true, 1});
    sgd(p.data(), g.data(), m.data(), n, {0.01, 0.9, 0.1, true, false});
    return p;
  });
}

}  // namespace
}  // namespace heed::kernels
