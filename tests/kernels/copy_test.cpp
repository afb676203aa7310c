#include <heed/tensor/kernels/elementwise.h>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;
using test::View;

template <class To, class From>
struct Pair {
  using to = To;
  using from = From;
};

template <class P>
class Copy : public testing::Test {};
using Pairs = testing::Types<Pair<float, float>, Pair<float, double>, Pair<float, Index>, Pair<float, bool>, Pair<double, float>,
                             Pair<double, double>, Pair<double, Index>, Pair<double, bool>, Pair<Index, float>, Pair<Index, double>,
                             Pair<Index, Index>, Pair<Index, bool>, Pair<bool, float>, Pair<bool, double>, Pair<bool, Index>, Pair<bool, bool>>;
TYPED_TEST_SUITE(Copy, Pairs);

TYPED_TEST(Copy, BetweenAllViews) {
  using To = typename TypeParam::to;
  using From = typename TypeParam::from;
  for (const Dims& shape : test::shapes()) {
    for (const View& from : test::views_of(shape)) {
      const Block<From> x = test::random_block<From>(from.elements, -3, 3, 1);
      for (const View& to : test::views_of(shape)) {
        if (detail::overlaps_itself({shape, to.strides, 0})) continue;
        const Block<To> before = test::random_block<To>(to.elements, 0, 100, 2);
        Block<To> out = before;
        copy<To, From>(out.data(), to.strides, {x.data(), from.strides}, shape);
        std::vector<bool> written(static_cast<std::size_t>(to.elements), false);
        for (Index i = 0, n = detail::numel(shape); i < n; ++i) {
          ASSERT_EQ(out[to.at(i)], static_cast<To>(x[from.at(i)])) << from.name << " to " << to.name << " at " << i;
          written[static_cast<std::size_t>(to.at(i))] = true;
        }
        for (Index i = 0; i < to.elements; ++i) ASSERT_TRUE(written[static_cast<std::size_t>(i)] || out[i] == before[i]) << "a gap was written to";
      }
    }
  }
}

TYPED_TEST(Copy, LargeTranspositionsWithSeveralThreads) {
  using To = typename TypeParam::to;
  using From = typename TypeParam::from;
  const Index rows = 301, columns = 407;
  const Block<From> x = test::random_block<From>(rows * columns, -100, 100, 3);
  set_num_threads(3);
  Block<To> out(rows * columns);
  copy<To, From>(out.data(), {columns, 1}, {x.data(), {1, rows}}, {rows, columns});
  set_num_threads(1);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) ASSERT_EQ(out[i * columns + j], static_cast<To>(x[i + j * rows]));
}

TEST(CopyConversions, FloatsToWholeNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {1.9, -1.9, 0.5, -0.5, 1e300, -1e300, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 0x1p63, -0x1p63};
  const Index low = std::numeric_limits<Index>::min(), high = std::numeric_limits<Index>::max(), n = static_cast<Index>(x.size());
  std::vector<Index> whole(x.size());
  copy<Index, double>(whole.data(), {1}, {x.data(), {1}}, {n});
  EXPECT_EQ(whole, (std::vector<Index>{1, -1, 0, 0, high, low, high, low, 0, high, low}));
  bool truth[11];
  copy<bool, double>(truth, {1}, {x.data(), {1}}, {n});
  for (const bool t : truth) EXPECT_TRUE(t);
  const double zero[] = {0.0, -0.0};
  copy<bool, double>(truth, {1}, {zero, {1}}, {2});
  EXPECT_FALSE(truth[0] || truth[1]);
}

TEST(CopyConversions, DoublesBeyondFloatsBecomeInfinite) {
  const double x[] = {1e300, -1e300, 1e-300};
  float out[3];
  copy<float, double>(out, {1}, {x, {1}}, {3});
  EXPECT_EQ(out[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(out[1], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(out[2], 0);
}

TEST(Fill, EverySize) {
  for (const Index n : {0, 1, 7, 100, 100000}) {
    Block<float> x(n);
    fill(x.data(), 2.5f, n);
    for (const float v : x) ASSERT_EQ(v, 2.5f);
    Block<bool> b(n);
    fill(b.data(), true, n);
    for (const bool v : b) ASSERT_TRUE(v);
  }
}

}  // namespace
}  // namespace heed::kernels
