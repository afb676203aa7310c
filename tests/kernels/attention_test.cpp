// The tiled attention kernels against the definition, written as plain loops in double.

#include <gtest/gtest.h>

#include <heed/tensor/kernels/attention.h>
#include <heed/tensor/parallel.h>
#include <heed/tensor/random.h>
#include <heed/tensor/storage.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention_reference.h"
#include "support.h"

namespace heed::kernels {
namespace {

using test::Problem;
using test::Results;

constexpr double inf = std::numeric_limits<double>::infinity();

template <class T>
class AttentionKernel : public testing::Test {
 protected:
  ~AttentionKernel() override {
    set_num_threads(1);
    set_deterministic(false);
  }
  /// Of results of size 1: the sums behind them have up to a thousand terms.
  static constexpr double tolerance = sizeof(T) == 4 ? 2e-5 : 2e-13;

  static void expect_near(const std::vector<T>& got, const std::vector<double>& want, const char* what, double at_most = tolerance) {
    ASSERT_EQ(got.size(), want.size()) << what;
    double size = 1;
    for (double x : want)
      if (std::isfinite(x)) size = std::max(size, std::abs(x));
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (std::isinf(want[i]) || std::isnan(want[i])) {
        ASSERT_EQ(std::isnan(static_cast<double>(got[i])), std::isnan(want[i])) << what << " " << i;
        if (!std::isnan(want[i])) {
          ASSERT_EQ(static_cast<double>(got[i]), want[i]) << what << " " << i;
        }
        continue;
      }
      ASSERT_LE(std::abs(static_cast<double>(got[i]) - want[i]), at_most * size) << what << " " << i << ": " << got[i] << ", want " << want[i];
    }
  }
  static void expect_right(const Problem<T>& x, double at_most = tolerance) {
    const Results<double> want = test::reference(x);
    const Results<T> got = test::run(x);
    expect_near(got.out, want.out, "out", at_most);
    EXPECT_TRUE(heed::test::same_bits(got.out_alone, got.out)) << "whether rows are kept";
    expect_near(got.max, want.max, "max", at_most);
    expect_near(got.sum, want.sum, "sum", at_most);
    expect_near(got.weights, want.weights, "weights", at_most);
    expect_near(got.dq, want.dq, "dq", at_most);
    expect_near(got.dk, want.dk, "dk", at_most);
    expect_near(got.dv, want.dv, "dv", at_most);
    expect_near(got.dbias, want.dbias, "dbias", at_most);
  }
  static void expect_same_bits(const Results<T>& a, const Results<T>& b) {
    EXPECT_TRUE(a.out == b.out && a.out_alone == b.out_alone && a.max == b.max && a.sum == b.sum && a.weights == b.weights) << "forward";
    EXPECT_TRUE(a.dq == b.dq) << "dq";
    EXPECT_TRUE(a.dk == b.dk) << "dk";
    EXPECT_TRUE(a.dv == b.dv) << "dv";
    EXPECT_TRUE(a.dbias == b.dbias) << "dbias";
  }
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionKernel, Floats);

TYPED_TEST(AttentionKernel, AgreesWithTheDefinitionForAllShapes) {
  const Index lengths[] = {0, 1, 5, 64, 77, 130, 512}, sizes[][2] = {{1, 8}, {8, 1}, {32, 32}, {64, 80}, {80, 64}, {64, 64}};
  unsigned seed = 0;
  for (const Index Tq : lengths)
    for (const Index Tk : lengths)
      for (const bool causal : {false, true}) {
        const auto& [d_k, d_v] = sizes[seed % 6];
        SCOPED_TRACE(testing::Message() << "Tq " << Tq << " Tk " << Tk << " d_k " << d_k << " d_v " << d_v << (causal ? " causal" : ""));
        Problem<TypeParam> x({Tq * Tk > 100000 ? 1 : 2, Tq, Tk, d_k, d_v}, ++seed);
        x.mask.causal = causal;
        x.mask.offset = Tk - Tq;
        this->expect_right(x);
        if (this->HasFatalFailure()) return;
      }
}

TYPED_TEST(AttentionKernel, AgreesWithTheDefinitionOnEveryTarget) {
  heed::test::for_each_target([&] {
    Problem<TypeParam> x({2, 77, 130, 24, 40}, 5);
    x.mask.causal = true;
    x.mask.offset = 50;
    x.add_keep(130, 1), x.add_bias(130, 1), x.dropout.p = 0.3;
    this->expect_right(x);
  });
}

TYPED_TEST(AttentionKernel, MasksCombine) {
  for (unsigned parts = 0; parts < 128; ++parts) {
    SCOPED_TRACE(testing::Message() << "parts " << parts);
    const Index Tq = parts % 2 ? 77 : 45, Tk = parts % 3 ? 130 : 70;
    Problem<TypeParam> x({3, Tq, Tk, 16, 8}, parts + 100);
    x.mask.offset = static_cast<Index>(parts % 5) * 11 - 20;
    if (parts & 1) x.mask.causal = true;
    if (parts & 2) x.mask.window = 1 + static_cast<Index>(parts % 7) * 9;
    if (parts & 4) x.add_lengths();
    if (parts & 8) x.add_keep(parts % 4 == 1 ? 0 : Tk, parts % 4 == 2 ? 0 : 1);
    if (parts & 16) x.add_bias(parts % 5 == 1 ? 0 : Tk, parts % 5 == 2 ? 0 : 1);
    if (parts & 32) x.add_slopes();
    if (parts & 64) x.dropout = {0.4, 7, 3 + parts};
    this->expect_right(x);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(AttentionKernel, FewQueries) {
  for (const Index Tq : {1, 2, 3, 4, 5})
    for (unsigned parts = 0; parts < 64; parts += Tq == 1 ? 1 : 3) {
      SCOPED_TRACE(testing::Message() << "Tq " << Tq << " parts " << parts);
      Problem<TypeParam> x({2, Tq, 3 + 67 * static_cast<Index>(parts % 11), parts % 2 ? 9 : 32, parts % 5 ? 64 : 3}, parts + 300);
      x.mask.offset = x.sizes.Tk - Tq;
      x.mask.causal = true;
      if (parts & 1) x.mask.window = 40;
      if (parts & 2) x.add_lengths();
      if (parts & 4) x.add_keep(parts % 5 ? x.sizes.Tk : 0, 1);
      if (parts & 8) x.add_bias(parts % 7 ? x.sizes.Tk : 0, parts % 3 ? 1 : 0);
      if (parts & 16) x.add_slopes();
      if (parts & 32) x.dropout = {0.4, 7, 3 + parts};
      this->expect_right(x);
      if (this->HasFatalFailure()) return;
    }
}

TYPED_TEST(AttentionKernel, OffsetsAndWindowsFarOut) {
  for (const Index offset : {Index{-1000}, Index{1000}, std::numeric_limits<Index>::max(), std::numeric_limits<Index>::min()})
    for (const Index window : {Index{0}, Index{1}, std::numeric_limits<Index>::max()})
      for (const bool causal : {false, true}) {
        Problem<TypeParam> x({1, 20, 30, 8, 8}, 1);
        x.mask.causal = causal, x.mask.offset = offset, x.mask.window = window;
        const bool none = (causal && offset < 0) || window == 1;
        const Results<TypeParam> got = test::run(x);
        for (const TypeParam sum : got.sum) EXPECT_EQ(sum == 0, none) << offset << " " << window << " " << causal;
        for (const TypeParam y : got.out) EXPECT_TRUE(none ? y == 0 : y != 0);
      }
}

TYPED_TEST(AttentionKernel, HeadsMayShareMatricesAndRowsMayBeFarApart) {
  Problem<TypeParam> x({6, 70, 90, 16, 24}, 3);
  x.restride(200);
  for (std::size_t p = 0; p < 6; ++p) x.k.offsets[p] = x.k.offsets[p / 3 * 3], x.v.offsets[p] = x.v.offsets[p / 3 * 3];
  x.mask.causal = true, x.mask.offset = 20;
  this->expect_right(x);
}

TYPED_TEST(AttentionKernel, QueriesThatMayAttendToNothingGiveZeros) {
  Problem<TypeParam> x({1, 40, 50, 8, 8}, 4);
  x.add_keep(50, 1), x.add_bias(50, 1);
  for (std::size_t j = 0; j < 50; ++j) {
    x.keep[3 * 50 + j] = 0;
    x.bias[7 * 50 + j] = static_cast<TypeParam>(-inf);
    x.keep[9 * 50 + j] = j % 2 == 1;
    if (j % 2) x.bias[9 * 50 + j] = static_cast<TypeParam>(-inf);
  }
  this->expect_right(x);
  const Results<TypeParam> got = test::run(x);
  for (const std::size_t i : {3u, 7u, 9u}) {
    EXPECT_EQ(got.sum[i], 0);
    EXPECT_EQ(got.max[i], static_cast<TypeParam>(-inf));
    for (std::size_t c = 0; c < 8; ++c) EXPECT_TRUE(got.out[i * 8 + c] == 0 && got.dq[i * 8 + c] == 0);
    for (std::size_t j = 0; j < 50; ++j) EXPECT_TRUE(got.weights[i * 50 + j] == 0 && got.dbias[i * 50 + j] == 0);
  }
}

TYPED_TEST(AttentionKernel, LargeAndFarApartScores) {
  // q . k is exact: the scores are whole numbers up to 1e4 in size.
  Problem<TypeParam> x({1, 40, 300, 1, 4}, 6);
  x.scale = 1;
  for (std::size_t i = 0; i < x.q.values.size(); ++i) x.q.values[i] = i % 2 ? 100 : -100;
  for (std::size_t j = 0; j < x.k.values.size(); ++j) x.k.values[j] = static_cast<TypeParam>(static_cast<int>(j * 37 % 201) - 100);
  this->expect_right(x, sizeof(TypeParam) == 4 ? 1e-4 : 1e-12);

  // A mask of the lowest finite number, as other libraries write it, below real scores and alone in a row.
  Problem<TypeParam> y({1, 2, 300, 4, 4}, 7);
  y.add_bias(300, 1);
  for (std::size_t j = 0; j < 300; ++j) {
    y.bias[j] = j < 5 ? TypeParam{0} : std::numeric_limits<TypeParam>::lowest();
    y.bias[300 + j] = std::numeric_limits<TypeParam>::lowest();
  }
  const Results<TypeParam> got = test::run(y);
  for (std::size_t j = 5; j < 300; ++j) EXPECT_EQ(got.weights[j], 0);
  double sum = 0;
  for (std::size_t j = 0; j < 300; ++j) sum += static_cast<double>(got.weights[300 + j]);
  EXPECT_NEAR(sum, 1, 1e-5);
  for (const auto* gradient : {&got.dq, &got.dk, &got.dv})
    for (const TypeParam g : *gradient) EXPECT_TRUE(std::isfinite(g));
}

TYPED_TEST(AttentionKernel, NaNAndInfinityGoThrough) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const int where : {0, 1, 2}) {
    Problem<TypeParam> x({1, 100, 100, 8, 8}, 8);
    x.mask.causal = true;
    (where == 0 ? x.q : where == 1 ? x.k : x.v).values[60 * 8 + 3] = where == 2 ? std::numeric_limits<TypeParam>::infinity() : nan;
    const Results<TypeParam> got = test::run(x);
    const auto finite = [&](std::size_t row) {
      for (std::size_t c = 0; c < 8; ++c)
        if (!std::isfinite(got.out[row * 8 + c])) return false;
      return true;
    };
    EXPECT_FALSE(finite(60)) << where;
    EXPECT_EQ(finite(99), where == 0);
    EXPECT_TRUE(finite(20)) << where;
  }
}

TYPED_TEST(AttentionKernel, DropoutDrawsTheBitsOfItsPlace) {
  Problem<TypeParam> x({2, 50, 70, 4, 70}, 9);
  x.dropout = {0.25, 42, 1001};
  // With the identity for values, the output is the dropped weights.
  std::fill(x.v.values.begin(), x.v.values.end(), TypeParam{0});
  for (std::size_t p = 0; p < 2; ++p)
    for (std::size_t j = 0; j < 70; ++j) x.v.values[(p * 70 + j) * 70 + j] = 1;
  const Results<TypeParam> got = test::run(x);
  for (std::size_t e = 0; e < got.out.size(); ++e) {
    const bool dropped = detail::uniform_at(42, 1001 + e) < 0.25;
    EXPECT_EQ(got.out[e] == 0, dropped) << e;
    if (!dropped) {
      EXPECT_NEAR(got.out[e], got.weights[e] / 0.75, 1e-5);
    }
  }
  x.dropout.p = 1;
  const Results<TypeParam> all = test::run(x);
  for (const auto* y : {&all.out, &all.dq, &all.dk, &all.dv})
    for (const TypeParam e : *y) EXPECT_EQ(e, 0);
}

TYPED_TEST(AttentionKernel, TheSameBitsForEveryThreadCount) {
  for (const bool causal : {false, true})
    for (const Index batch : {1, 3}) {
      Problem<TypeParam> x({batch, 400, 380, 8, 8}, 10);
      x.mask.causal = causal;
      x.add_bias(380, 1);
      x.dropout.p = 0.1;
      const Results<TypeParam> one = test::run(x);
      for (const int threads : {2, 4, 7}) {
        SCOPED_TRACE(testing::Message() << threads << " threads, batch " << batch);
        set_num_threads(threads);
        const Results<TypeParam> many = test::run(x);
        this->expect_same_bits(one, many);
      }
      set_num_threads(1);
    }
}

TYPED_TEST(AttentionKernel, GradientsThatAreNotWantedChangeNothing) {
  Problem<TypeParam> x({2, 100, 140, 16, 24}, 11);
  x.mask.causal = true, x.mask.offset = 30;
  x.add_bias(140, 1);
  const Results<TypeParam> all = test::run(x);
  for (unsigned wanted = 0; wanted < 16; ++wanted) {
    const Results<TypeParam> some = test::run(x, wanted);
    EXPECT_TRUE(wanted & 1 ? some.dq == all.dq : some.dq.empty());
    EXPECT_TRUE(wanted & 2 ? some.dk == all.dk : some.dk.empty());
    EXPECT_TRUE(wanted & 4 ? some.dv == all.dv : some.dv.empty());
    EXPECT_TRUE(wanted & 8 ? some.dbias == all.dbias : some.dbias.empty());
  }
}

TYPED_TEST(AttentionKernel, MemoryDoesNotGrowWithTheSquare) {
  Problem<TypeParam> x({1, 1024, 1024, 8, 8}, 12);
  x.mask.causal = true;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Results<TypeParam> r = test::make_results(x, 7);
    detail::reset_peak_bytes();
    const std::int64_t before = detail::memory_counters().live_bytes;
    test::run_into(x, r);
    EXPECT_LE(detail::memory_counters().peak_bytes - before, threads << 18);
    EXPECT_EQ(detail::memory_counters().live_bytes, before);
  }
}

/// Gradients of sum(out * dout) against central differences of the forward: the definition's backward is not trusted alone.
TEST(AttentionKernelF64, GradientsAreThoseOfTheForward) {
  Problem<double> x({2, 9, 11, 3, 5}, 13);
  x.mask.causal = true, x.mask.offset = 2;
  x.add_keep(11, 1), x.add_bias(11, 1), x.add_slopes();
  x.dropout = {0.2, 5, 9};
  const Results<double> got = test::run(x);
  const auto loss = [&] {
    const Results<double> y = test::run(x, 0);
    double sum = 0;
    for (std::size_t i = 0; i < y.out.size(); ++i) sum += y.out[i] * x.dout.values[i];
    return sum;
  };
  const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient, const char* what) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isinf(values[i])) continue;
      const double kept = values[i], step = 1e-5;
      values[i] = kept + step;
      const double up = loss();
      values[i] = kept - step;
      const double down = loss();
      values[i] = kept;
      EXPECT_NEAR(gradient[i], (up - down) / (2 * step), 1e-8) << what << " " << i;
    }
  };
  check(x.q.values, got.dq, "dq");
  check(x.k.values, got.dk, "dk");
  check(x.v.values, got.dv, "dv");
  check(x.bias, got.dbias, "dbias");
}

}  // namespace
}  // namespace heed::kernels
