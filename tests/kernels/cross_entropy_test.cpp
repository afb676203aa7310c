#include <heed/tensor/kernels/cross_entropy.h>

#include "support.h"

// The fused loss against its formula in long double, on every instruction set.

namespace heed::kernels {
namespace {

using test::Block;

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
class CrossEntropy : public testing::Test {
 public:
  struct Result {
    Block<T> losses, dx;
  };
  /// Upstream gradients are 1, 2, ..., by row, times a quarter.
  static Result run(const Block<T>& x, const std::vector<Index>& classes, Index columns, double smoothing, Index ignored = -100) {
    const Index rows = static_cast<Index>(classes.size());
    Result r{Block<T>(rows), Block<T>(rows * columns)};
    Block<T> stats(2 * rows), g(rows);
    for (Index i = 0; i < rows; ++i) g[i] = static_cast<T>(i + 1);
    const CrossEntropyTargets targets{classes.data(), ignored, smoothing};
    cross_entropy(r.losses.data(), stats.data(), x.data(), targets, 1, rows, columns);
    cross_entropy_backward(r.dx.data(), x.data(), stats.data(), targets, g.data(), Index{1}, 0.25, rows, columns);
    return r;
  }
  static double epsilon() { return static_cast<double>(std::numeric_limits<T>::epsilon()); }
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(CrossEntropy, Floats);

TYPED_TEST(CrossEntropy, AgreesWithTheFormula) {
  using T = TypeParam;
  test::for_each_target([] {
    for (const Index columns : {1, 2, 3, 7, 8, 16, 17, 33, 65, 1000, 1025, 3001})
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        SCOPED_TRACE(testing::Message() << columns << " columns, smoothing " << smoothing);
        const Index rows = 4;
        const Block<T> x = test::random_block<T>(rows * columns, -8, 8, static_cast<unsigned>(columns));
        std::vector<Index> classes;
        for (Index i = 0; i < rows; ++i) classes.push_back(i == 2 ? -100 : (i * 7 + 3) % columns);
        const auto got = CrossEntropy<T>::run(x, classes, columns, smoothing);
        for (Index i = 0; i < rows; ++i) {
          long double sum = 0, loss = 0;
          for (Index j = 0; j < columns; ++j) sum += std::exp(static_cast<long double>(x[i * columns + j]));
          for (Index j = 0; j < columns; ++j) {
            const long double log_p = static_cast<long double>(x[i * columns + j]) - std::log(sum);
            const long double share =
                classes[static_cast<std::size_t>(i)] == -100
                    ? 0
                    : smoothing / static_cast<long double>(columns) + (j == classes[static_cast<std::size_t>(i)] ? 1 - smoothing : 0);
            const long double p = classes[static_cast<std::size_t>(i)] == -100 ? 0 : std::exp(log_p);
            loss -= share * log_p;
            const double want = static_cast<double>((p - share) * static_cast<long double>(i + 1) / 4);
            ASSERT_NEAR(static_cast<double>(got.dx[i * columns + j]), want, 16 * CrossEntropy<T>::epsilon()) << i << ", " << j;
          }
          ASSERT_NEAR(static_cast<double>(got.losses[i]), static_cast<double>(loss), 16 * CrossEntropy<T>::epsilon() * 16) << i;
        }
      }
  });
}

TYPED_TEST(CrossEntropy, TakesLargeAndInfiniteLogits) {
  using T = TypeParam;
  test::for_each_target([] {
    const T inf = static_cast<T>(infinity), big = static_cast<T>(2e8);
    const Block<T> x(std::vector<T>{big, big, -inf, 0, 1, -inf, -inf, -inf, -inf});
    const auto got = CrossEntropy<T>::run(x, {0, 1, 2}, 3, 0);
    EXPECT_NEAR(static_cast<double>(got.losses[0]), 0.6931471805599453, 1e-7) << "largest and logarithm of the sum are not added up";
    EXPECT_NEAR(static_cast<double>(got.dx[0]), -0.125, 1e-7);
    EXPECT_NEAR(static_cast<double>(got.dx[1]), 0.125, 1e-7);
    EXPECT_EQ(got.dx[2], 0);
    EXPECT_NEAR(static_cast<double>(got.losses[1]), 0.3132616875182229, 1e-7);
    EXPECT_EQ(got.dx[5], 0);
    EXPECT_TRUE(std::isnan(got.losses[2])) << "as softmax of nothing";
    EXPECT_EQ(CrossEntropy<T>::run(x, {2}, 3, 0).losses[0], inf);
    EXPECT_EQ(CrossEntropy<T>::run(x, {0}, 3, 0.1).losses[0], inf);
    EXPECT_EQ(CrossEntropy<T>::run(x, {2}, 3, 1).losses[0], inf);
  });
}

/// Whatever stands in a row that does not count.
TYPED_TEST(CrossEntropy, RowsThatAreIgnoredAreZeros) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const Block<T> x(std::vector<T>{nan, nan, 1, 2});
  const auto got = CrossEntropy<T>::run(x, {7, 0}, 2, 0.1, 7);
  EXPECT_EQ(got.losses[0], 0);
  EXPECT_EQ(got.dx[0], 0);
  EXPECT_EQ(got.dx[1], 0);
  EXPECT_GT(got.losses[1], 0);
}

}  // namespace
}  // namespace heed::kernels
