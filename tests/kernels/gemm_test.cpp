#include <heed/tensor/kernels/gemm.h>

#include <array>
#include <limits>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;

/// A matrix in a block of just its size, with strides of its own.
template <class T>
struct Operand {
  Block<T> block;
  Index row, col;
  Matrix<T> view() const { return {block.data(), row, col}; }
  Matrix<T> at(Index offset) const { return {block.data() + offset, row, col}; }
};

enum class Order { rows, columns };

template <class T>
Operand<T> operand(Index rows, Index columns, Order order, unsigned seed, Index gap = 0, Index step = 1) {
  const Index row = order == Order::rows ? columns * step + gap : step;
  const Index col = order == Order::rows ? step : rows * step + gap;
  const Index extent = rows == 0 || columns == 0 ? 0 : (rows - 1) * row + (columns - 1) * col + 1;
  return {test::random_block<T>(extent, -1, 1, seed), row, col};
}

/// The plain loop in f64, and the sum of absolute values that a rounding error is measured by.
template <class T>
struct Truth {
  std::vector<double> value, size;
  Truth(Index m, Index n, Index k, Matrix<T> a, Matrix<T> b) : value(static_cast<std::size_t>(m * n)), size(value) {
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j)
        for (Index p = 0; p < k; ++p) {
          const double x =
              static_cast<double>(a.data[i * a.row_stride + p * a.col_stride]) * static_cast<double>(b.data[p * b.row_stride + j * b.col_stride]);
          value[static_cast<std::size_t>(i * n + j)] += x;
          size[static_cast<std::size_t>(i * n + j)] += std::abs(x);
        }
  }
};

template <class T>
void expect_product(const Truth<T>& truth, double before, Index m, Index n, const T* c, Index ldc) {
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      const std::size_t at = static_cast<std::size_t>(i * n + j);
      const double want = before + truth.value[at];
      const double allowed = 32 * static_cast<double>(std::numeric_limits<T>::epsilon()) * (truth.size[at] + std::abs(before));
      ASSERT_NEAR(static_cast<double>(c[i * ldc + j]), want, allowed) << "element " << i << ", " << j;
    }
}

constexpr double marker = 0.75;

/// Runs all entry points on one product: right values, nothing written between the rows of c, the same bits inside a region.
template <class T>
void check(Index m, Index n, Index k, const Operand<T>& a, const Operand<T>& b, Index ldc, Into into) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", A strides " << a.row << ", " << a.col << ", B strides " << b.row << ", "
                                  << b.col << ", ldc " << ldc << (into == Into::accumulate ? ", accumulate" : ""));
  const Truth<T> truth(m, n, k, a.view(), b.view());
  const double before = into == Into::accumulate ? marker : 0;
  const Index size = m == 0 ? 0 : (m - 1) * ldc + n;
  const auto fresh = [&] {
    Block<T> c(size);
    std::fill(c.begin(), c.end(), static_cast<T>(marker));
    return c;
  };
  const auto verify = [&](const Block<T>& c) {
    expect_product(truth, before, m, n, c.data(), ldc);
    for (Index i = 0; i + 1 < m; ++i)
      for (Index j = n; j < ldc; ++j) ASSERT_EQ(c[i * ldc + j], static_cast<T>(marker)) << "written behind row " << i;
  };
  Block<T> c = fresh(), routed = fresh(), here = fresh(), scratch(portable::gemm_here_scratch(m, n, k));
  portable::gemm(m, n, k, a.view(), b.view(), c.data(), ldc, into);
  verify(c);
  gemm(m, n, k, a.view(), b.view(), routed.data(), ldc, into);
  verify(routed);
  portable::gemm_here(m, n, k, a.view(), b.view(), here.data(), ldc, into, scratch.data());
  EXPECT_TRUE(here.same_bits(c));
}

template <class T>
class Gemm : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Floats);

TYPED_TEST(Gemm, AgreesWithThePlainLoopForSmallSizes) {
  test::for_each_target([] {
    for (const Index m : {1, 2, 3, 5, 13, 15, 17})
      for (const Index n : {1, 2, 7, 8, 16, 17, 33})
        for (const Index k : {1, 2, 7, 16, 65})
          for (const Order a : {Order::rows, Order::columns})
            for (const Order b : {Order::rows, Order::columns}) {
              const Into into = (m + n + k) % 2 ? Into::overwrite : Into::accumulate;
              check(m, n, k, operand<TypeParam>(m, k, a, 1), operand<TypeParam>(k, n, b, 2), n + k % 3, into);
              if (testing::Test::HasFatalFailure()) return;
            }
  });
}

/// Also where oneDNN serves f32, and where there is nothing to multiply.
TYPED_TEST(Gemm, AddsABiasToEveryRow) {
  using T = TypeParam;
  for (const auto& [m, n, k] : std::vector<std::array<Index, 3>>{{1, 1, 1}, {3, 5, 0}, {7, 33, 5}, {1, 40, 300}, {129, 8, 2}, {160, 136, 128}})
    for (const Order order : {Order::rows, Order::columns}) {
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
      const Operand<T> a = operand<T>(m, k, Order::rows, 1), b = operand<T>(k, n, order, 2);
      const Block<T> bias = test::random_block<T>(n, -3, 3, 3);
      const Index ldc = n + 2;
      Block<T> c(m * ldc);
      std::fill(c.begin(), c.end(), static_cast<T>(marker));
      gemm_bias(m, n, k, a.view(), b.view(), bias.data(), c.data(), ldc);
      const Truth<T> truth(m, n, k, a.view(), b.view());
      for (Index i = 0; i < m; ++i) {
        for (Index j = 0; j < n; ++j) {
          const std::size_t at = static_cast<std::size_t>(i * n + j);
          const double offset = static_cast<double>(bias[j]), eps = static_cast<double>(std::numeric_limits<T>::epsilon());
          ASSERT_NEAR(static_cast<double>(c[i * ldc + j]), truth.value[at] + offset, 32 * eps * (truth.size[at] + std::abs(offset)));
        }
        for (Index j = n; j < ldc; ++j) ASSERT_EQ(c[i * ldc + j], static_cast<T>(marker)) << "written behind row " << i;
      }
    }
}

TYPED_TEST(Gemm, AgreesWithThePlainLoopForLargeAndOddSizes) {
  struct Sizes {
    Index m, n, k;
  };
  test::for_each_target([] {
    for (const Sizes& s : {Sizes{64, 64, 64},
                           {100, 3, 257},
                           {3, 100, 300},
                           {16, 70, 256},
                           {70, 16, 300},
                           {65, 129, 67},
                           {43, 400, 300},
                           {31, 800, 20},
                           {60, 33, 600},
                           {1, 500, 700},
                           {500, 1, 700},
                           {1, 1, 1000},
                           {45, 128, 512}})
      for (const Order a : {Order::rows, Order::columns})
        for (const Order b : {Order::rows, Order::columns}) {
          const Into into = s.m % 2 ? Into::overwrite : Into::accumulate;
          check(s.m, s.n, s.k, operand<TypeParam>(s.m, s.k, a, 3, s.m % 5), operand<TypeParam>(s.k, s.n, b, 4, s.n % 3), s.n + s.k % 2, into);
          if (testing::Test::HasFatalFailure()) return;
        }
  });
}

TYPED_TEST(Gemm, TakesAnyStrides) {
  test::for_each_target([] {
    for (const Index m : {1, 4, 20, 70})
      for (const Index n : {1, 5, 40}) {
        const Index k = 90;
        for (const Order a : {Order::rows, Order::columns})
          for (const Order b : {Order::rows, Order::columns})
            check(m, n, k, operand<TypeParam>(m, k, a, 5, 3, 2), operand<TypeParam>(k, n, b, 6, 1, 3), n, Into::overwrite);
        // Repeated rows, columns and single elements.
        const Block<TypeParam> x = test::random_block<TypeParam>(400, -1, 1, 7);
        for (const auto& [row, col] : {std::pair<Index, Index>{0, 1}, {1, 0}, {0, 0}, {3, 1}}) {
          check(m, n, k, Operand<TypeParam>{x, row, col}, operand<TypeParam>(k, n, Order::rows, 8), n, Into::overwrite);
          check(m, n, k, operand<TypeParam>(m, k, Order::rows, 9), Operand<TypeParam>{x, row, col}, n, Into::accumulate);
        }
        if (testing::Test::HasFatalFailure()) return;
      }
  });
}

// cases.md ON-D1: the stride of a dim of size 1 means nothing.
TYPED_TEST(Gemm, IgnoresStridesOfSizeOneDims) {
  using T = TypeParam;
  test::for_each_target([] {
    const Block<T> x(std::vector<T>{1, 2, 3});
    for (const Index odd : {0, 1, 2, 777, 999}) {
      T dot = 0;
      gemm<T>(1, 1, 3, {x.data(), odd, 1}, {x.data(), 1, odd}, &dot, odd);
      EXPECT_EQ(dot, 14);
      std::vector<T> outer(9);
      gemm<T>(3, 3, 1, {x.data(), 1, odd}, {x.data(), odd, 1}, outer.data(), 3);
      EXPECT_EQ(outer, (std::vector<T>{1, 2, 3, 2, 4, 6, 3, 6, 9}));
    }
  });
}

// cases.md MM-D1
TYPED_TEST(Gemm, AnInnerDimensionOfZeroGivesZeros) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> c(6, nan);
  gemm<T>(3, 2, 0, {nullptr, 0, 1}, {nullptr, 2, 1}, c.data(), 2);
  EXPECT_EQ(c, std::vector<T>(6, 0));
  c.assign(6, nan);
  portable::gemm<T>(2, 2, 0, {nullptr, 0, 1}, {nullptr, 2, 1}, c.data(), 4);
  EXPECT_EQ(c[0], 0);
  EXPECT_EQ(c[5], 0);
  EXPECT_TRUE(std::isnan(c[2]) && std::isnan(c[3]));
  c.assign(6, 5);
  gemm<T>(3, 2, 0, {nullptr, 0, 1}, {nullptr, 2, 1}, c.data(), 2, Into::accumulate);
  EXPECT_EQ(c, std::vector<T>(6, 5));
  std::vector<T> batch(24, nan);
  gemm_batched<T>(4, 3, 2, 0, {nullptr, 0, 1}, 0, {nullptr, 2, 1}, 0, batch.data());
  EXPECT_EQ(batch, std::vector<T>(24, 0));
}

// cases.md ON-D2
TYPED_TEST(Gemm, EmptyResultsAreLeftAlone) {
  using T = TypeParam;
  const Block<T> x = test::random_block<T>(24, -1, 1, 1);
  T untouched = 7;
  for (const Order a : {Order::rows, Order::columns}) {
    const Matrix<T> left = a == Order::rows ? Matrix<T>{x.data(), 4, 1} : Matrix<T>{x.data(), 1, 4};
    gemm<T>(0, 3, 4, left, {x.data(), 3, 1}, &untouched, 3);
    gemm<T>(3, 0, 4, left, {x.data(), 0, 1}, &untouched, 0);
    portable::gemm<T>(0, 0, 4, left, {x.data(), 0, 1}, &untouched, 0, Into::accumulate);
    gemm_batched<T>(0, 2, 2, 3, left, 6, {x.data(), 2, 1}, 6, &untouched);
    gemm_batched<T>(5, 0, 2, 3, left, 6, {x.data(), 2, 1}, 6, &untouched);
  }
  EXPECT_EQ(untouched, 7);
}

// cases.md MM-D3: nothing is skipped for being 0.
TYPED_TEST(Gemm, NanAndInfinityMeetZerosAsIeeeSays) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  test::for_each_target([&] {
    const std::vector<T> zero_one{0, 1}, nan_one{nan, 1}, mixed{inf, 0, 1, 2};
    T c[2];
    gemm<T>(1, 1, 2, {zero_one.data(), 2, 1}, {nan_one.data(), 1, 1}, c, 1);
    EXPECT_TRUE(std::isnan(c[0]));
    gemm<T>(1, 1, 1, {zero_one.data(), 1, 1}, {&inf, 1, 1}, c, 1);
    EXPECT_TRUE(std::isnan(c[0]));
    gemm<T>(1, 2, 2, {zero_one.data(), 2, 1}, {mixed.data(), 2, 1}, c, 2);
    EXPECT_TRUE(std::isnan(c[0]));
    EXPECT_EQ(c[1], 2);
    // One NaN in B makes one column of NaN, whatever A holds.
    for (const Index size : {4, 20, 160}) {
      const Block<T> a(size * size);
      Block<T> b = test::random_block<T>(size * size, -1, 1, 2), product(size * size);
      b[size + 2] = nan;
      gemm<T>(size, size, size, {a.data(), size, 1}, {b.data(), size, 1}, product.data(), size);
      for (Index i = 0; i < size * size; ++i) ASSERT_EQ(std::isnan(product[i]), i % size == 2) << "size " << size << " element " << i;
      // What c held before does not matter: not even a NaN.
      std::fill(product.begin(), product.end(), nan);
      b[size + 2] = 0;
      gemm<T>(size, size, size, {a.data(), size, 1}, {b.data(), size, 1}, product.data(), size);
      for (const T v : product) ASSERT_EQ(v, 0);
    }
  });
}

TYPED_TEST(Gemm, BatchesAgreeWithSingleProducts) {
  using T = TypeParam;
  const int before = detail::num_threads();
  struct Sizes {
    Index batch, m, n, k;
  };
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    for (const Sizes& s : {Sizes{1, 5, 6, 7}, {4, 3, 2, 5}, {7, 1, 40, 65}, {6, 64, 32, 48}, {2, 100, 90, 80}, {12, 33, 33, 33}, {5, 9, 70, 300}})
      for (const Order order : {Order::rows, Order::columns})
        for (const bool repeat_a : {false, true})
          for (const bool repeat_b : {false, true}) {
            const Index a_size = s.m * s.k, b_size = s.k * s.n, c_size = s.m * s.n;
            const Operand<T> a{test::random_block<T>(repeat_a ? a_size : a_size * s.batch, -1, 1, 1), s.k, 1};
            const Operand<T> b{test::random_block<T>(repeat_b ? b_size : b_size * s.batch, -1, 1, 2), order == Order::rows ? s.n : 1,
                               order == Order::rows ? 1 : s.k};
            Block<T> c(c_size * s.batch), own(c_size * s.batch);
            const Index a_step = repeat_a ? 0 : a_size, b_step = repeat_b ? 0 : b_size;
            gemm_batched(s.batch, s.m, s.n, s.k, a.view(), a_step, b.view(), b_step, c.data());
            portable::gemm_batched(s.batch, s.m, s.n, s.k, a.view(), a_step, b.view(), b_step, own.data());
            for (Index p = 0; p < s.batch; ++p) {
              const Truth<T> truth(s.m, s.n, s.k, a.at(p * a_step), b.at(p * b_step));
              SCOPED_TRACE(testing::Message() << "product " << p << " of " << s.batch << ", " << s.m << " x " << s.n << " x " << s.k);
              expect_product(truth, 0, s.m, s.n, c.data() + p * c_size, s.n);
              expect_product(truth, 0, s.m, s.n, own.data() + p * c_size, s.n);
              if (testing::Test::HasFatalFailure()) return;
            }
          }
  }
  set_num_threads(before);
}

// Heads side by side in the columns of one matrix, as multi-head attention has them.
TYPED_TEST(Gemm, BatchesOfInterleavedHeads) {
  using T = TypeParam;
  const Index heads = 3, rows = 40, width = 16, all = heads * width;
  const Block<T> q = test::random_block<T>(rows * all, -1, 1, 1), keys = test::random_block<T>(rows * all, -1, 1, 2);
  Block<T> scores(heads * rows * rows);
  gemm_batched<T>(heads, rows, rows, width, {q.data(), all, 1}, width, {keys.data(), 1, all}, width, scores.data());
  for (Index h = 0; h < heads; ++h) {
    const Truth<T> truth(rows, rows, width, {q.data() + h * width, all, 1}, {keys.data() + h * width, 1, all});
    expect_product(truth, 0, rows, rows, scores.data() + h * rows * rows, rows);
  }
}

TYPED_TEST(Gemm, PortableBitsDoNotDependOnTheThreads) {
  using T = TypeParam;
  struct Sizes {
    Index m, n, k;
  };
  for (const Sizes& s :
       {Sizes{100, 90, 80}, {300, 65, 600}, {17, 900, 70}, {1, 70000, 5}, {1, 900, 700}, {900, 1, 700}, {8, 600, 300}, {128, 128, 512}}) {
    for (const Order order : {Order::rows, Order::columns}) {
      const Operand<T> a = operand<T>(s.m, s.k, order, 1), b = operand<T>(s.k, s.n, order, 2);
      SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k);
      test::expect_same_bits_for_all_thread_counts([&] {
        Block<T> c(s.m * s.n);
        portable::gemm(s.m, s.n, s.k, a.view(), b.view(), c.data(), s.n);
        return c;
      });
    }
  }
  test::expect_same_bits_for_all_thread_counts([] {
    const Operand<T> a{test::random_block<T>(6 * 40 * 50, -1, 1, 1), 50, 1}, b{test::random_block<T>(6 * 50 * 60, -1, 1, 2), 60, 1};
    Block<T> c(6 * 40 * 60);
    portable::gemm_batched(6, 40, 60, 50, a.view(), 40 * 50, b.view(), 50 * 60, c.data());
    return c;
  });
}

// Also at sizes that oneDNN serves otherwise.
TYPED_TEST(Gemm, DeterministicModeHasTheSameBitsForAllThreadCounts) {
  using T = TypeParam;
  const struct Deterministic {
    Deterministic() { set_deterministic(true); }
    ~Deterministic() { set_deterministic(false); }
  } mode;
  for (const Index size : {60, 160, 256}) {
    const Operand<T> a = operand<T>(size, size, Order::rows, 1), b = operand<T>(size, size, Order::columns, 2);
    test::expect_same_bits_for_all_thread_counts([&] {
      Block<T> c(2 * size * size);
      gemm(size, size, size, a.view(), b.view(), c.data(), size);
      gemm(size, size, size, b.view(), a.view(), c.data() + size * size, size, Into::accumulate);
      return c;
    });
  }
}

TYPED_TEST(Gemm, TheSameThreadCountGivesTheSameBits) {
  using T = TypeParam;
  const int before = detail::num_threads();
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    const Operand<T> a = operand<T>(256, 200, Order::rows, 1), b = operand<T>(200, 256, Order::rows, 2);
    Block<T> first(256 * 256), again(256 * 256);
    gemm(256, 256, 200, a.view(), b.view(), first.data(), 256);
    gemm(256, 256, 200, a.view(), b.view(), again.data(), 256);
    EXPECT_TRUE(first.same_bits(again)) << threads << " threads";
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace heed::kernels
