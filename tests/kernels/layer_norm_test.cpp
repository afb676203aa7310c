#include <heed/tensor/kernels/layer_norm.h>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;

template <class T>
class LayerNorm : public testing::Test {
 public:
  static constexpr long double epsilon = static_cast<long double>(std::numeric_limits<T>::epsilon());

  struct Result {
    Block<T> y, mean, rstd;
  };
  static Result forward(const std::vector<T>& x, Index rows, double eps, const T* weight = nullptr, const T* bias = nullptr) {
    Result r{Block<T>(static_cast<Index>(x.size())), Block<T>(rows), Block<T>(rows)};
    layer_norm(r.y.data(), r.mean.data(), r.rstd.data(), x.data(), weight, bias, eps, rows, rows ? r.y.size() / rows : 0);
    return r;
  }
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(LayerNorm, Floats);

TYPED_TEST(LayerNorm, ForwardAndBackward) {
  using T = TypeParam;
  using L = long double;
  test::for_each_target([&] {
    for (const Index columns : {1, 2, 3, 7, 16, 17, 33, 100, 768, 1025})
      for (const Index rows : {1, 3, 64, 130})
        for (int absent = 0; absent < 4; ++absent) {
          SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", " << absent);
          const Index n = rows * columns;
          const Block<T> x = test::random_block<T>(n, -1, 2, 1), dy = test::random_block<T>(n, -1, 1, 2);
          const Block<T> w = test::random_block<T>(columns, 0.5, 1.5, 3), b = test::random_block<T>(columns, -1, 1, 4);
          const T *weight = absent & 1 ? nullptr : w.data(), *bias = absent & 2 ? nullptr : b.data();
          const double eps = 1e-5;
          Block<T> y(n), mean(rows), rstd(rows), dx(n), dweight(columns), dbias(columns);
          layer_norm(y.data(), mean.data(), rstd.data(), x.data(), weight, bias, eps, rows, columns);
          layer_norm_backward(dx.data(), dweight.data(), dbias.data(), dy.data(), x.data(), mean.data(), rstd.data(), weight, eps, rows, columns);
          std::vector<L> want_dweight(static_cast<std::size_t>(columns)), want_dbias(want_dweight.size());
          for (Index r = 0; r < rows; ++r) {
            L m = 0, v = 0, sum = 0, dot = 0;
            for (Index j = 0; j < columns; ++j) m += x[r * columns + j];
            m /= static_cast<L>(columns);
            for (Index j = 0; j < columns; ++j) v += (x[r * columns + j] - m) * (x[r * columns + j] - m);
            const L s = 1 / std::sqrt(v / static_cast<L>(columns) + static_cast<L>(eps));
            const auto gradient = [&](Index j) { return static_cast<L>(dy[r * columns + j]) * (weight ? w[j] : T{1}); };
            const auto normalized = [&](Index j) { return (x[r * columns + j] - m) * s; };
            for (Index j = 0; j < columns; ++j) sum += gradient(j), dot += gradient(j) * normalized(j);
            sum /= static_cast<L>(columns), dot /= static_cast<L>(columns);
            ASSERT_LE(std::abs(mean[r] - m), 2 * this->epsilon);
            ASSERT_LE(std::abs(rstd[r] - s), 4 * this->epsilon * s);
            for (Index j = 0; j < columns; ++j) {
              const L want = normalized(j) * (weight ? w[j] : T{1}) + (bias ? b[j] : T{0});
              ASSERT_LE(std::abs(y[r * columns + j] - want), this->epsilon * (8 + 4 * s));
              ASSERT_LE(std::abs(dx[r * columns + j] - s * (gradient(j) - sum - normalized(j) * dot)), this->epsilon * s * (16 + 8 * s));
              want_dweight[static_cast<std::size_t>(j)] += dy[r * columns + j] * normalized(j);
              want_dbias[static_cast<std::size_t>(j)] += dy[r * columns + j];
            }
          }
          for (Index j = 0; j < columns; ++j) {
            ASSERT_LE(std::abs(dweight[j] - want_dweight[static_cast<std::size_t>(j)]), this->epsilon * 16 * static_cast<L>(rows));
            ASSERT_LE(std::abs(dbias[j] - want_dbias[static_cast<std::size_t>(j)]), this->epsilon * 4 * static_cast<L>(rows));
          }
          // Each gradient alone.
          Block<T> only_dx(n), only_dweight(columns), only_dbias(columns);
          layer_norm_backward<T>(only_dx.data(), nullptr, nullptr, dy.data(), x.data(), mean.data(), rstd.data(), weight, eps, rows, columns);
          layer_norm_backward<T>(nullptr, only_dweight.data(), nullptr, dy.data(), x.data(), mean.data(), rstd.data(), weight, eps, rows, columns);
          layer_norm_backward<T>(nullptr, nullptr, only_dbias.data(), dy.data(), x.data(), mean.data(), rstd.data(), weight, eps, rows, columns);
          EXPECT_TRUE(only_dx.same_bits(dx) && only_dweight.same_bits(dweight) && only_dbias.same_bits(dbias));
        }
  });
}

TYPED_TEST(LayerNorm, LargeMeansDoNotCancel) {
  using T = TypeParam;
  test::for_each_target([&] {
    const auto r = this->forward({70000, 70001, 70003, 70004}, 1, 1e-5);
    const double want[] = {-1.2649085, -0.6324543, 0.6324543, 1.2649085};
    for (Index i = 0; i < 4; ++i) EXPECT_NEAR(r.y[i], want[i], 1e-5);
  });
  static_cast<void>(T{});
}

TYPED_TEST(LayerNorm, ConstantRowsGiveExactZeros) {
  using T = TypeParam;
  test::for_each_target([&] {
    for (const double value : {777.25, 0.1, -3.3333333333, 1e-7, 12345.678})
      for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{192}, std::size_t{1001}})
        for (const T v : this->forward(std::vector<T>(n, static_cast<T>(value)), 1, 1e-5).y) ASSERT_EQ(v, 0) << n << " times " << value;
  });
}

TYPED_TEST(LayerNorm, GradientsOfAConstantRow) {
  using T = TypeParam;
  const T weight[] = {1, 2, 3}, bias[] = {T(0.5), T(0.25), 0}, dy[] = {1, 2, 3};
  test::for_each_target([&] {
    const std::vector<T> x = {5, 5, 5};
    const auto r = this->forward(x, 1, 1e-5, weight, bias);
    for (Index i = 0; i < 3; ++i) EXPECT_EQ(r.y[i], bias[i]);
    T dx[3], dweight[3], dbias[3];
    layer_norm_backward(dx, dweight, dbias, dy, x.data(), r.mean.data(), r.rstd.data(), weight, 1e-5, 1, 3);
    const double want[] = {-1159.50180873, -210.81851068, 1370.32031941};
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(dx[i], want[i], sizeof(T) == 4 ? 1e-3 : 1e-7);
      EXPECT_EQ(dweight[i], 0);
      EXPECT_EQ(dbias[i], dy[i]);
    }
  });
}

TYPED_TEST(LayerNorm, SmallVariancesCount) {
  using T = TypeParam;
  test::for_each_target([&] {
    const auto inside = this->forward({static_cast<T>(-.001), static_cast<T>(.001)}, 1, 1e-5);
    EXPECT_NEAR(inside.y[0], -0.30151134, 1e-7);
    EXPECT_NEAR(inside.y[1], 0.30151134, 1e-7);
    const T small = static_cast<T>(5e-4);
    const auto tiny = this->forward({-small, small, -small, small}, 1, 1e-12);
    for (Index i = 0; i < 4; ++i) EXPECT_NEAR(tiny.y[i], i % 2 ? 0.999998 : -0.999998, 1e-6);
  });
}

TYPED_TEST(LayerNorm, RowsWhoseSquaresDoNotFitAreNormalizedAsOthers) {
  using T = TypeParam;
  const Index rows = 5, columns = 67, n = rows * columns;
  constexpr double eps = static_cast<double>(std::numeric_limits<T>::epsilon());
  const Block<T> x = test::random_block<T>(n, -1, 2, 1), w = test::random_block<T>(columns, 0.5, 1.5, 3), dy = test::random_block<T>(n, -1, 1, 4);
  test::for_each_target([&] {
    const auto run = [&](const Block<T>& in, Block<T>& y, Block<T>& dx, Block<T>& dweight) {
      Block<T> mean(rows), rstd(rows), dbias(columns);
      layer_norm<T>(y.data(), mean.data(), rstd.data(), in.data(), w.data(), nullptr, 0, rows, columns);
      layer_norm_backward(dx.data(), dweight.data(), dbias.data(), dy.data(), in.data(), mean.data(), rstd.data(), w.data(), 0, rows, columns);
    };
    Block<T> y(n), dx(n), dweight(columns), far_y(n), far_dx(n), far_dweight(columns), far = x;
    run(x, y, dx, dweight);
    const int exponents[] = {0, sizeof(T) == 4 ? 100 : 1000, sizeof(T) == 4 ? -90 : -1000, sizeof(T) == 4 ? 66 : 530, 3};
    for (Index i = 0; i < n; ++i) far[i] = std::ldexp(far[i], exponents[i / columns]);
    run(far, far_y, far_dx, far_dweight);
    for (Index i = 0; i < n; ++i) {
      ASSERT_NEAR(far_y[i], y[i], 16 * eps) << i;
      ASSERT_NEAR(std::ldexp(far_dx[i], exponents[i / columns]), dx[i], 64 * eps) << i;
    }
    for (Index j = 0; j < columns; ++j) ASSERT_NEAR(far_dweight[j], dweight[j], 64 * eps) << j;
  });
}

TYPED_TEST(LayerNorm, NoRowsOrNoColumns) {
  using T = TypeParam;
  EXPECT_EQ(this->forward({}, 0, 1e-5).y.size(), 0);
  T dweight[] = {1, 1, 1}, dbias[] = {1, 1, 1};
  layer_norm_backward<T>(nullptr, dweight, dbias, nullptr, nullptr, nullptr, nullptr, nullptr, 1e-5, 0, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(dweight[i], 0);
    EXPECT_EQ(dbias[i], 0);
  }
  T mean[2], rstd[2];
  layer_norm<T>(nullptr, mean, rstd, nullptr, nullptr, nullptr, 1e-5, 2, 0);
  layer_norm_backward<T>(nullptr, nullptr, nullptr, nullptr, nullptr, mean, rstd, nullptr, 1e-5, 2, 0);
}

TYPED_TEST(LayerNorm, SameBitsForAllThreadCounts) {
  using T = TypeParam;
  const Index rows = 1003, columns = 133, n = rows * columns;
  const Block<T> x = test::random_block<T>(n, -1, 2, 1), w = test::random_block<T>(columns, 0.5, 1.5, 3);
  test::expect_same_bits_for_all_thread_counts([&] {
    Block<T> out(2 * n + 2 * columns), mean(rows), rstd(rows);
    layer_norm<T>(out.data(), mean.data(), rstd.data(), x.data(), w.data(), nullptr, 1e-5, rows, columns);
    T* dx = out.data() + n;
    layer_norm_backward<T>(dx, dx + n, dx + n + columns, out.data(), x.data(), mean.data(), rstd.data(), w.data(), 1e-5, rows, columns);
    return out;
  });
}

}  // namespace
}  // namespace heed::kernels
