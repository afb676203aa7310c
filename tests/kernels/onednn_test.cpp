#include <heed/tensor/kernels/onednn.h>
#include <heed/tensor/kernels/softmax.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;

class OneDnn : public testing::Test {
 protected:
  void SetUp() override {
    if (!onednn::available()) GTEST_SKIP() << "this build has no oneDNN";
  }
  ~OneDnn() override { set_num_threads(before_); }

 private:
  int before_ = detail::num_threads();
};

struct Sizes {
  Index m, n, k;
};
enum class Order { rows, columns };

/// Strides of a matrix whose rows, or columns, have `gap` elements between them.
Matrix<float> in_order(const Block<float>& x, Index rows, Index columns, Order order, Index gap = 0) {
  if (order == Order::rows) return {x.data(), columns + gap, 1};
  return {x.data(), 1, rows + gap};
}

void expect_product(const Sizes& s, Matrix<float> a, Matrix<float> b, const float* c, Index ldc, double before = 0) {
  for (Index i = 0; i < s.m; ++i)
    for (Index j = 0; j < s.n; ++j) {
      double sum = before, size = std::abs(before);
      for (Index p = 0; p < s.k; ++p) {
        const double x =
            static_cast<double>(a.data[i * a.row_stride + p * a.col_stride]) * static_cast<double>(b.data[p * b.row_stride + j * b.col_stride]);
        sum += x;
        size += std::abs(x);
      }
      ASSERT_NEAR(static_cast<double>(c[i * ldc + j]), sum, 4e-6 * size)
          << s.m << " x " << s.n << " x " << s.k << ", element " << i << ", " << j << ", by " << onednn::last_implementation();
    }
}

bool one_product(const Sizes& s, Matrix<float> a, Matrix<float> b, float* c, Index ldc, Into into = Into::overwrite) {
  return onednn::gemm_batched(1, s.m, s.n, s.k, a, 0, b, 0, c, ldc, into);
}

TEST_F(OneDnn, HasAVersion) { EXPECT_NE(onednn::version(), ""); }

TEST_F(OneDnn, ProductsAgreeWithThePlainLoop) {
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (const Sizes& s : {Sizes{1, 1, 1}, {1, 7, 5}, {7, 1, 5}, {3, 4, 1}, {2, 3, 4}, {16, 16, 16}, {17, 31, 33}, {64, 48, 65}, {128, 96, 160}})
      for (const Order left : {Order::rows, Order::columns})
        for (const Order right : {Order::rows, Order::columns})
          for (const Index gap : {0, 3})
            for (const Into into : {Into::overwrite, Into::accumulate}) {
              const Block<float> a = test::random_block<float>((s.m + gap) * (s.k + gap), -1, 1, 1);
              const Block<float> b = test::random_block<float>((s.k + gap) * (s.n + gap), -1, 1, 2);
              const Matrix<float> x = in_order(a, s.m, s.k, left, gap), y = in_order(b, s.k, s.n, right, gap);
              const Index ldc = s.n + gap;
              Block<float> c(s.m * ldc);
              std::fill(c.begin(), c.end(), 0.5f);
              // Vectors with gaps are refused: oneDNN 3.7.2 takes them for vectors without.
              const bool is_gappy = gap > 0 && ((s.m == 1 && s.k > 1 && left == Order::columns) || (s.n == 1 && s.m > 1));
              ASSERT_EQ(one_product(s, x, y, c.data(), ldc, into), !is_gappy);
              if (is_gappy) continue;
              expect_product(s, x, y, c.data(), ldc, into == Into::accumulate ? 0.5 : 0);
              for (Index i = 0; i < s.m; ++i)
                for (Index j = s.n; j < ldc; ++j) ASSERT_EQ(c[i * ldc + j], 0.5f) << "written behind row " << i;
              if (HasFatalFailure()) return;
            }
  }
}

TEST_F(OneDnn, BatchesAgreeWithThePlainLoop) {
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    const Sizes s{40, 24, 16};
    const Index batch = 6;
    const Block<float> a = test::random_block<float>(batch * s.m * s.k, -1, 1, 1), b = test::random_block<float>(batch * s.k * s.n, -1, 1, 2);
    Block<float> c(batch * s.m * s.n);
    for (const Order left : {Order::rows, Order::columns})
      for (const Order right : {Order::rows, Order::columns}) {
        const Matrix<float> x = in_order(a, s.m, s.k, left), y = in_order(b, s.k, s.n, right);
        ASSERT_TRUE(onednn::gemm_batched(batch, s.m, s.n, s.k, x, s.m * s.k, y, s.k * s.n, c.data(), s.n, Into::overwrite));
        for (Index p = 0; p < batch; ++p)
          expect_product(s, {x.data + p * s.m * s.k, x.row_stride, x.col_stride}, {y.data + p * s.k * s.n, y.row_stride, y.col_stride},
                         c.data() + p * s.m * s.n, s.n);
      }
  }
}

TEST_F(OneDnn, ABiasComesAlong) {
  const Sizes s{40, 24, 16};
  const Index batch = 3;
  const Block<float> a = test::random_block<float>(batch * s.m * s.k, -1, 1, 1), b = test::random_block<float>(batch * s.k * s.n, -1, 1, 2);
  const Block<float> bias = test::random_block<float>(s.n, -1, 1, 3);
  const Matrix<float> x = in_order(a, s.m, s.k, Order::rows), y = in_order(b, s.k, s.n, Order::columns);
  for (const Index count : {Index{1}, batch}) {
    Block<float> plain(count * s.m * s.n), with(count * s.m * s.n);
    ASSERT_TRUE(onednn::gemm_batched(count, s.m, s.n, s.k, x, s.m * s.k, y, s.k * s.n, plain.data(), s.n, Into::overwrite));
    ASSERT_TRUE(onednn::gemm_batched(count, s.m, s.n, s.k, x, s.m * s.k, y, s.k * s.n, with.data(), s.n, Into::overwrite, bias.data()));
    for (Index i = 0; i < with.size(); ++i) ASSERT_NEAR(with[i], plain[i] + bias[i % s.n], 1e-5f) << count << " products, element " << i;
  }
}

TEST_F(OneDnn, BatchesOfInterleavedHeadsAreRightOrRefused) {
  const Index heads = 4, rows = 48, width = 32, all = heads * width;
  const Block<float> q = test::random_block<float>(rows * all, -1, 1, 1), keys = test::random_block<float>(rows * all, -1, 1, 2);
  Block<float> c(heads * rows * rows);
  std::fill(c.begin(), c.end(), 3.f);
  if (onednn::gemm_batched(heads, rows, rows, width, {q.data(), all, 1}, width, {keys.data(), 1, all}, width, c.data(), rows, Into::overwrite)) {
    for (Index h = 0; h < heads; ++h)
      expect_product({rows, rows, width}, {q.data() + h * width, all, 1}, {keys.data() + h * width, 1, all}, c.data() + h * rows * rows, rows);
  } else {
    for (const float v : c) ASSERT_EQ(v, 3.f);
  }
}

// cases.md ON-D1: they are normalized, not handed on.
TEST_F(OneDnn, StridesOfSizeOneDimsMeanNothing) {
  const Block<float> x(std::vector<float>{1, 2, 3});
  for (const Index odd : {0, 1, 2, 777, 999}) {
    float dot = 0;
    ASSERT_TRUE(one_product({1, 1, 3}, {x.data(), odd, 1}, {x.data(), 1, odd}, &dot, odd));
    EXPECT_EQ(dot, 14);
    std::vector<float> outer(9);
    ASSERT_TRUE(one_product({3, 3, 1}, {x.data(), 1, odd}, {x.data(), odd, 1}, outer.data(), 3));
    EXPECT_EQ(outer, (std::vector<float>{1, 2, 3, 2, 4, 6, 3, 6, 9}));
  }
}

// cases.md ON-D2 and the list of what must never reach oneDNN.
TEST_F(OneDnn, TurnsAwayWhatItMustNotSee) {
  Block<float> x = test::random_block<float>(4096, -1, 1, 1);
  std::vector<float> c(256, 9);
  const Matrix<float> rows{x.data(), 8, 1}, columns{x.data(), 1, 8};
  const auto refused = [&](Index batch, const Sizes& s, Matrix<float> a, Index a_step, Matrix<float> b, Index b_step, float* to, Index ldc) {
    return !onednn::gemm_batched(batch, s.m, s.n, s.k, a, a_step, b, b_step, to, ldc, Into::overwrite);
  };
  for (const Matrix<float>& operand : {rows, columns}) {
    EXPECT_TRUE(refused(1, {0, 3, 4}, operand, 0, operand, 0, c.data(), 3)) << "no rows";
    EXPECT_TRUE(refused(1, {2, 0, 4}, operand, 0, operand, 0, c.data(), 0)) << "no columns";
    EXPECT_TRUE(refused(1, {2, 3, 0}, operand, 0, operand, 0, c.data(), 3)) << "no inner dimension";
    EXPECT_TRUE(refused(0, {2, 3, 4}, operand, 8, operand, 8, c.data(), 3)) << "no batch";
  }
  EXPECT_TRUE(refused(1, {8, 8, 8}, {x.data(), 16, 2}, 0, rows, 0, c.data(), 8)) << "neither rows nor columns dense";
  EXPECT_TRUE(refused(1, {8, 8, 8}, rows, 0, {x.data(), 8, 0}, 0, c.data(), 8)) << "a repeated column";
  EXPECT_TRUE(refused(1, {8, 8, 8}, {x.data(), 0, 1}, 0, rows, 0, c.data(), 8)) << "a repeated row";
  EXPECT_TRUE(refused(1, {8, 8, 8}, {x.data(), 4, 1}, 0, rows, 0, c.data(), 8)) << "rows that overlap";
  EXPECT_TRUE(refused(4, {8, 8, 8}, rows, 0, rows, 64, c.data(), 8)) << "a repeated operand in a batch";
  EXPECT_TRUE(refused(4, {8, 8, 8}, rows, 64, rows, 0, c.data(), 8)) << "a repeated operand in a batch";
  EXPECT_TRUE(refused(1, {8, 8, 8}, rows, 0, rows, 0, c.data(), 7)) << "rows of the result that overlap";
  EXPECT_TRUE(refused(1, {8, 8, 8}, rows, 0, columns, 0, x.data() + 63, 8)) << "a result that overlaps both operands";
  EXPECT_TRUE(refused(1, {8, 8, 8}, {x.data() + 64, 8, 1}, 0, columns, 0, x.data(), 8)) << "a result that is an operand";
  EXPECT_EQ(c, std::vector<float>(256, 9)) << "something was written";
}

/// The shapes that matter: the layers and the attention of the benchmarks.
TEST_F(OneDnn, ServesTheShapesThatMatterWithFastKernels) {
  const int most = detail::num_threads();
  for (const int threads : {1, most})
    for (const Sizes& s : {Sizes{768, 384, 128},
                           {768, 128, 128},
                           {768, 512, 128},
                           {768, 128, 512},
                           {128, 64, 128},
                           {512, 64, 256},
                           {1024, 64, 512},
                           {512, 512, 64},
                           {256, 256, 64},
                           {256, 64, 256},
                           {1024, 768, 768}})
      for (const Order left : {Order::rows, Order::columns})
        for (const Order right : {Order::rows, Order::columns})
          for (const Into into : {Into::overwrite, Into::accumulate}) {
            set_num_threads(threads);
            const Block<float> a(s.m * s.k), b(s.k * s.n);
            Block<float> c(s.m * s.n);
            ASSERT_TRUE(one_product(s, in_order(a, s.m, s.k, left), in_order(b, s.k, s.n, right), c.data(), s.n, into))
                << s.m << " x " << s.n << " x " << s.k;
            const std::string name = onednn::last_implementation();
            EXPECT_NE(name, "");
            EXPECT_EQ(name.find("ref"), std::string::npos) << name << " for " << s.m << " x " << s.n << " x " << s.k;
          }
  // Heads: scores of queries and keys, and weights times values.
  for (const Order right : {Order::rows, Order::columns}) {
    const Index batch = 12, T = 64, d = 32;
    const Block<float> a(batch * T * T), b(batch * T * d);
    Block<float> c(batch * T * T);
    const bool scores = right == Order::columns;
    const Sizes s{T, scores ? T : d, scores ? d : T};
    ASSERT_TRUE(onednn::gemm_batched(batch, s.m, s.n, s.k, in_order(a, s.m, s.k, Order::rows), s.m * s.k, in_order(b, s.k, s.n, right), s.k * s.n,
                                     c.data(), s.n, Into::overwrite));
    EXPECT_EQ(onednn::last_implementation().find("ref"), std::string::npos) << onednn::last_implementation();
  }
}

TEST_F(OneDnn, SoftmaxAndItsBackwardAgreeWithFormulas) {
  for (const auto& [rows, columns] : {std::pair<Index, Index>{1, 1}, {1, 5}, {5, 1}, {7, 33}, {64, 64}, {100, 257}}) {
    const Index size = rows * columns;
    const Block<float> x = test::random_block<float>(size, -5, 5, 1), dy = test::random_block<float>(size, -1, 1, 2);
    Block<float> y(size), dx(size), in_place = x, dx_in_place = dy;
    ASSERT_TRUE(onednn::softmax(y.data(), x.data(), rows, columns));
    ASSERT_TRUE(onednn::softmax(in_place.data(), in_place.data(), rows, columns));
    // oneDNN 2.6 has a fast kernel for the gradient with AVX-512 only; heed's own serves other CPUs.
    const bool backward = onednn::softmax_backward(dx.data(), y.data(), dy.data(), rows, columns);
    ASSERT_TRUE(backward || (hwy::SupportedTargets() & HWY_AVX3) == 0);
    ASSERT_EQ(onednn::softmax_backward(dx_in_place.data(), y.data(), dx_in_place.data(), rows, columns), backward);
    for (Index i = 0; i < rows; ++i) {
      double largest = -1e30, sum = 0, dot = 0;
      for (Index j = 0; j < columns; ++j) largest = std::max(largest, static_cast<double>(x[i * columns + j]));
      for (Index j = 0; j < columns; ++j) sum += std::exp(static_cast<double>(x[i * columns + j]) - largest);
      const auto p = [&, n = columns](Index j) { return std::exp(static_cast<double>(x[i * n + j]) - largest) / sum; };
      for (Index j = 0; j < columns; ++j) dot += p(j) * static_cast<double>(dy[i * columns + j]);
      for (Index j = 0; j < columns; ++j) {
        const Index at = i * columns + j;
        ASSERT_NEAR(static_cast<double>(y[at]), p(j), 2e-6);
        ASSERT_NEAR(static_cast<double>(in_place[at]), p(j), 2e-6);
        if (!backward) continue;
        ASSERT_NEAR(static_cast<double>(dx[at]), p(j) * (static_cast<double>(dy[at]) - dot), 4e-6);
        ASSERT_NEAR(static_cast<double>(dx_in_place[at]), p(j) * (static_cast<double>(dy[at]) - dot), 4e-6);
      }
    }
  }
}

// cases.md ON-D2, and rows of -inf, where its kernels disagree with each other.
TEST_F(OneDnn, SoftmaxTurnsAwayWhatItMustNotSee) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x{1, 2, 3, -inf, -inf, -inf, 4, 5, 6}, y(9, 7);
  EXPECT_FALSE(onednn::softmax(y.data(), x.data(), 3, 3)) << "a row of -inf";
  EXPECT_FALSE(onednn::softmax(y.data(), x.data(), 0, 3));
  EXPECT_FALSE(onednn::softmax(y.data(), x.data(), 3, 0));
  EXPECT_FALSE(onednn::softmax_backward(y.data(), x.data(), x.data(), 0, 3));
  EXPECT_FALSE(onednn::softmax_backward(y.data(), x.data(), x.data(), 3, 0));
  EXPECT_EQ(y, std::vector<float>(9, 7)) << "something was written";
  const std::vector<float> before = x;
  EXPECT_FALSE(onednn::softmax(x.data() + 1, x.data(), 1, 3)) << "rows that overlap";
  EXPECT_FALSE(onednn::softmax_backward(x.data(), x.data(), y.data(), 1, 3)) << "a result in the place of y";
  EXPECT_EQ(x, before);
  x[4] = 0;
  ASSERT_TRUE(onednn::softmax(y.data(), x.data(), 3, 3));
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[4], 1);
}

// What is turned away reaches the user as the same result, by heed's own kernels.
TEST_F(OneDnn, TheFallbackServesWhatIsTurnedAway) {
  const Index size = 160;  // large enough for oneDNN, were it not for the strides
  Block<float> a = test::random_block<float>(size * size * 2, -1, 1, 1), b = test::random_block<float>(size * size, -1, 1, 2), c(size * size);
  for (const Matrix<float>& x : {Matrix<float>{a.data(), 2 * size, 2}, {a.data(), 0, 1}, {a.data(), 1, 0}}) {
    gemm<float>(size, size, size, x, {b.data(), size, 1}, c.data(), size);
    expect_product({size, size, size}, x, {b.data(), size, 1}, c.data(), size);
  }
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> rows{-inf, -inf, 1, 2}, y(4);
  softmax(y.data(), rows.data(), 2, 2);
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_NEAR(y[2] + y[3], 1, 1e-6);
  softmax_or_zero(y.data(), rows.data(), 2, 2);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
}

TEST_F(OneDnn, LargeRoundProductsGoThereAndOthersDoNot) {
  const auto calls = [](Index m, Index n, Index k) {
    const Block<float> a(m * k), b(k * n);
    Block<float> c(m * n);
    const auto before = onednn::cache_counters();
    gemm<float>(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c.data(), n);
    const auto after = onednn::cache_counters();
    return after.hits + after.misses - before.hits - before.misses;
  };
  EXPECT_EQ(calls(256, 256, 256), 1);
  EXPECT_EQ(calls(512, 64, 256), 1);
  EXPECT_EQ(calls(64, 64, 64), 0) << "small";
  EXPECT_EQ(calls(257, 256, 256), 0) << "a length among many";
  EXPECT_EQ(calls(1, 4096, 4096), 0) << "one token";
  set_deterministic(true);
  EXPECT_EQ(calls(256, 256, 256), 0) << "deterministic";
  set_deterministic(false);
}

TEST_F(OneDnn, LengthsThatGrowTokenByTokenMakeNoPrimitives) {
  const Index width = 512;
  const Block<float> tokens = test::random_block<float>(300 * width, -1, 1, 1), weight = test::random_block<float>(width * width, -1, 1, 2);
  Block<float> c(300 * width);
  const auto before = onednn::cache_counters();
  for (Index T = 1; T < 300; T += 14) {
    gemm<float>(1, T, width, {tokens.data(), width, 1}, {tokens.data(), 1, width}, c.data(), T);
    gemm<float>(1, width, T, {tokens.data(), T, 1}, {tokens.data(), width, 1}, c.data(), width);
    gemm<float>(T, width, width, {tokens.data(), width, 1}, {weight.data(), 1, width}, c.data(), width);
  }
  EXPECT_EQ(onednn::cache_counters().misses, before.misses);
}

TEST_F(OneDnn, TheCacheKeepsItsLimit) {
  std::thread([] {  // a thread of its own has a cache of its own
    const auto product = [](Index n, float want) {
      const Block<float> a(std::vector<float>(4, 1)), b(std::vector<float>(static_cast<std::size_t>(4 * n), 2));
      Block<float> c(n);
      ASSERT_TRUE(one_product({1, n, 4}, {a.data(), 4, 1}, {b.data(), n, 1}, c.data(), n));
      for (const float v : c) ASSERT_EQ(v, want);
    };
    const auto start = onednn::cache_counters();
    EXPECT_EQ(start.hits + start.misses + start.size, 0);
    ASSERT_GT(start.limit, 0);
    for (Index n = 1; n <= 1000; ++n) {
      product(n, 8);
      ASSERT_LE(onednn::cache_counters().size, start.limit);
    }
    EXPECT_EQ(onednn::cache_counters().size, start.limit);
    EXPECT_EQ(onednn::cache_counters().misses, 1000);
    product(1000, 8);
    product(1000 - start.limit + 1, 8);
    EXPECT_EQ(onednn::cache_counters().hits, 2) << "those used last are kept";
    product(1, 8);
    EXPECT_EQ(onednn::cache_counters().misses, 1001) << "those used first are gone";
  })
      .join();
}

// cases.md ON-D3: every thread has its own primitives and scratchpad.
TEST_F(OneDnn, EightThreadsGetTheResultsOfOne) {
  set_num_threads(2);
  constexpr std::array<Sizes, 5> shapes{Sizes{32, 32, 32}, {64, 48, 16}, {33, 65, 70}, {128, 64, 40}, {16, 160, 96}};
  const Block<float> a = test::random_block<float>(20000, -1, 1, 1), b = test::random_block<float>(20000, -1, 1, 2);
  const auto compute = [&](std::size_t shape) {
    const Sizes& s = shapes[shape];
    Block<float> c(s.m * s.n), p(s.m * s.n);
    EXPECT_TRUE(one_product(s, {a.data(), s.k, 1}, {b.data(), 1, s.k}, c.data(), s.n));
    EXPECT_TRUE(onednn::softmax(p.data(), c.data(), s.m, s.n));
    return p;
  };
  std::vector<Block<float>> want;
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) want.push_back(compute(shape));
  std::vector<double> worst(8, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t call = 0; call < 200; ++call) {
        const std::size_t shape = (call * 7 + t) % shapes.size();
        const Block<float> got = compute(shape);
        for (Index i = 0; i < got.size(); ++i) worst[t] = std::max(worst[t], static_cast<double>(std::abs(got[i] - want[shape][i])));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const double error : worst) EXPECT_LT(error, 1e-5);
}

TEST_F(OneDnn, ThreadCountsMayChangeBetweenCalls) {
  const Index size = 192;
  const Block<float> a = test::random_block<float>(size * size, -1, 1, 1), b = test::random_block<float>(size * size, -1, 1, 2);
  Block<float> c(size * size);
  for (const int threads : {1, 4, 1, 2, 4, 2, 1}) {
    set_num_threads(threads);
    std::fill(c.begin(), c.end(), 0.f);
    gemm<float>(size, size, size, {a.data(), size, 1}, {b.data(), 1, size}, c.data(), size);
    expect_product({size, size, size}, {a.data(), size, 1}, {b.data(), 1, size}, c.data(), size);
  }
}

// Its threads, and whatever a thread of the parent had locked, are lost in the child.
TEST_F(OneDnn, AForkedChildUsesHeedsOwnKernels) {
  set_num_threads(2);
  const Index size = 256;
  const Block<float> a = test::random_block<float>(size * size, -1, 1, 1), b = test::random_block<float>(size * size, -1, 1, 2);
  Block<float> c(size * size);
  const auto product = [&] { gemm<float>(size, size, size, {a.data(), size, 1}, {b.data(), size, 1}, c.data(), size); };
  product();
  const Block<float> want = c;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    if (onednn::available()) _exit(2);
    std::fill(c.begin(), c.end(), 0.f);
    product();
    float worst = 0;
    for (Index i = 0; i < c.size(); ++i) worst = std::max(worst, std::abs(c[i] - want[i]));
    _exit(worst < 1e-3f ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_TRUE(onednn::available()) << "the parent goes on as before";
}

}  // namespace
}  // namespace heed::kernels
