#include <heed/tensor/kernels/softmax.h>

#include <functional>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
class Softmax : public testing::Test {
 public:
  static constexpr long double epsilon = static_cast<long double>(std::numeric_limits<T>::epsilon());

  /// Calls body(rows, columns, x) for sizes around those of vectors and of what is summed in one go.
  static void for_sizes(const std::function<void(Index, Index, const Block<T>&)>& body) {
    test::for_each_target([&] {
      for (const Index columns : {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1000, 1024, 1025, 3000}) {
        SCOPED_TRACE(testing::Message() << columns << " columns");
        body(3, columns, test::random_block<T>(3 * columns, -8, 8, static_cast<unsigned>(columns)));
      }
      body(0, 5, Block<T>(0));
      body(5, 0, Block<T>(0));
    });
  }
  static long double log_sum(const Block<T>& x, Index row, Index columns) {
    long double sum = 0;
    for (Index j = 0; j < columns; ++j) sum += std::exp(static_cast<long double>(x[row * columns + j]));
    return std::log(sum);
  }
  static std::vector<T> values(std::initializer_list<double> x) { return {x.begin(), x.end()}; }
  static void expect_near(const Block<T>& got, std::initializer_list<double> want) {
    ASSERT_EQ(got.size(), static_cast<Index>(want.size()));
    Index i = 0;
    for (const double w : want) {
      if (std::isinf(w) || std::isnan(w))
        EXPECT_TRUE(std::isnan(w) ? std::isnan(got[i]) : got[i] == static_cast<T>(w)) << "element " << i << " is " << got[i];
      else
        EXPECT_NEAR(got[i], w, sizeof(T) == 4 ? 1e-6 : 1e-8) << "element " << i;
      ++i;
    }
  }
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Softmax, Floats);

TYPED_TEST(Softmax, Forward) {
  using T = TypeParam;
  this->for_sizes([&](Index rows, Index columns, const Block<T>& x) {
    Block<T> y(x.size()), z(x.size()), log_y(x.size()), in_place = x;
    softmax(y.data(), x.data(), rows, columns);
    softmax_or_zero(z.data(), x.data(), rows, columns);
    log_softmax(log_y.data(), x.data(), rows, columns);
    portable::softmax(in_place.data(), in_place.data(), rows, columns);
    for (Index r = 0; r < rows; ++r) {
      const long double log_sum = this->log_sum(x, r, columns);
      for (Index i = r * columns; i < (r + 1) * columns; ++i) {
        const long double log_want = x[i] - log_sum, want = std::exp(log_want);
        // The argument of exp is up to 16, and rounded.
        ASSERT_LE(std::abs(y[i] - want), 10 * this->epsilon * want);
        ASSERT_EQ(z[i], y[i]);
        ASSERT_EQ(in_place[i], y[i]);
        ASSERT_LE(std::abs(log_y[i] - log_want), 24 * this->epsilon);
      }
    }
  });
}

TYPED_TEST(Softmax, Backward) {
  using T = TypeParam;
  this->for_sizes([&](Index rows, Index columns, const Block<T>& x) {
    const Block<T> dy = test::random_block<T>(x.size(), -1, 1, 9);
    Block<T> y(x.size()), log_y(x.size()), dx(x.size()), log_dx(x.size()), in_place = dy, log_in_place = dy;
    softmax(y.data(), x.data(), rows, columns);
    log_softmax(log_y.data(), x.data(), rows, columns);
    softmax_backward(dx.data(), y.data(), dy.data(), rows, columns);
    portable::softmax_backward(in_place.data(), y.data(), in_place.data(), rows, columns);
    log_softmax_backward(log_dx.data(), log_y.data(), dy.data(), rows, columns);
    log_softmax_backward(log_in_place.data(), log_y.data(), log_in_place.data(), rows, columns);
    for (Index r = 0; r < rows && columns > 0; ++r) {
      long double dot = 0, sum = 0, size = 0;
      for (Index j = r * columns; j < (r + 1) * columns; ++j) dot += static_cast<long double>(y[j]) * dy[j], sum += dy[j], size += std::abs(dy[j]);
      for (Index j = r * columns; j < (r + 1) * columns; ++j) {
        ASSERT_LE(std::abs(dx[j] - y[j] * (dy[j] - dot)), 4 * this->epsilon * y[j]);
        ASSERT_LE(std::abs(log_dx[j] - (dy[j] - std::exp(static_cast<long double>(log_y[j])) * sum)), 4 * this->epsilon * size);
        ASSERT_EQ(in_place[j], dx[j]);
        ASSERT_EQ(log_in_place[j], log_dx[j]);
      }
    }
  });
}

TYPED_TEST(Softmax, LargeEqualLogitsDoNotCancel) {
  using T = TypeParam;
  const T x[] = {static_cast<T>(2e8), static_cast<T>(2e8)}, dy[] = {-1, 0};
  test::for_each_target([&] {
    Block<T> y(2), dx(2);
    log_softmax(y.data(), x, 1, 2);
    log_softmax_backward(dx.data(), y.data(), dy, 1, 2);
    this->expect_near(y, {-0.6931471805599453, -0.6931471805599453});
    this->expect_near(dx, {-0.5, 0.5});
  });
}

TYPED_TEST(Softmax, MinusInfinities) {
  using T = TypeParam;
  test::for_each_target([&] {
    const std::vector<T> x = this->values({-infinity, 0, -infinity, 1}), g = this->values({1, 2, 3, 4}), log_g = this->values({0, 2, 0, 4});
    Block<T> y(4), dx(4);
    softmax(y.data(), x.data(), 1, 4);
    this->expect_near(y, {0, 0.2689414213699951, 0, 0.7310585786300049});
    EXPECT_EQ(y[0], 0);
    softmax_backward(dx.data(), y.data(), g.data(), 1, 4);
    this->expect_near(dx, {0, -0.3932238664829637, 0, 0.3932238664829637});
    log_softmax(y.data(), x.data(), 1, 4);
    this->expect_near(y, {-infinity, -1.3132616875182228, -infinity, -0.3132616875182228});
    log_softmax_backward(dx.data(), y.data(), log_g.data(), 1, 4);
    this->expect_near(dx, {0, 0.3863514717800295, 0, -0.3863514717800295});

    Block<T> late(1025), out(1025);
    std::fill(late.begin(), late.end(), -std::numeric_limits<T>::infinity());
    late[1024] = 0;
    for (const auto f : {softmax<T>, softmax_or_zero<T>}) {
      f(out.data(), late.data(), 1, 1025);
      for (Index i = 0; i < 1025; ++i) ASSERT_EQ(out[i], i == 1024 ? 1 : 0);
    }
  });
}

TYPED_TEST(Softmax, RowsOfNothingAndNan) {
  using T = TypeParam;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  test::for_each_target([&] {
    Block<T> y(4);
    const std::vector<T> nothing = this->values({-infinity, -infinity, 0, 1});
    softmax(y.data(), nothing.data(), 2, 2);
    this->expect_near(y, {nan, nan, 0.2689414213699951, 0.7310585786300049});
    softmax_or_zero(y.data(), nothing.data(), 2, 2);
    this->expect_near(y, {0, 0, 0.2689414213699951, 0.7310585786300049});
    // A NaN among -inf is no row of nothing, wherever it stands.
    for (Index place = 0; place < 33; ++place) {
      Block<T> x(33), out(33);
      std::fill(x.begin(), x.end(), -std::numeric_limits<T>::infinity());
      x[place] = std::numeric_limits<T>::quiet_NaN();
      softmax_or_zero(out.data(), x.data(), 1, 33);
      for (const T v : out) ASSERT_TRUE(std::isnan(v));
    }
    const std::vector<T> endless = this->values({infinity, 0, 1, 2});
    softmax(y.data(), endless.data(), 1, 4);
    EXPECT_TRUE(std::isnan(y[0]));
  });
}

TYPED_TEST(Softmax, LongRowsSumToOne) {
  using T = TypeParam;
  const Index columns = 50257;
  const Block<T> x = test::random_block<T>(columns, -4, 4, 1);
  Block<T> y(columns);
  softmax(y.data(), x.data(), 1, columns);
  long double sum = 0;
  for (const T v : y) sum += v;
  EXPECT_NEAR(static_cast<double>(sum), 1, 4 * static_cast<double>(this->epsilon));
}

TYPED_TEST(Softmax, SameBitsForAllThreadCounts) {
  using T = TypeParam;
  const Index rows = 1001, columns = 131;
  const Block<T> x = test::random_block<T>(rows * columns, -4, 4, 2);
  test::expect_same_bits_for_all_thread_counts([&] {
    Block<T> y(x.size());
    softmax(y.data(), x.data(), rows, columns);
    softmax_backward(y.data(), y.data(), x.data(), rows, columns);
    log_softmax(y.data(), y.data(), rows, columns);
    log_softmax_backward(y.data(), y.data(), x.data(), rows, columns);
    return y;
  });
}

}  // namespace
}  // namespace heed::kernels
