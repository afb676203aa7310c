#include <heed/tensor/kernels/reduce.h>

#include <functional>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;
using test::View;

/// A reduction of a view: its dims shared out in all ways.
struct Case {
  View view;
  Axes kept, reduced;

  Index outputs() const { return detail::numel(kept.shape); }
  Index terms() const { return detail::numel(reduced.shape); }
  Index at(Index output, Index term) const {
    return View("", kept.shape, kept.strides).at(output) + View("", reduced.shape, reduced.strides).at(term);
  }
};

void for_cases(const std::vector<Dims>& shapes, const std::function<void(const Case&)>& body) {
  for (const Dims& shape : shapes)
    for (const View& view : test::views_of(shape))
      for (unsigned mask = 0; mask < (1u << shape.size()); ++mask) {
        Case c{view, {}, {}};
        for (std::size_t d = 0; d < shape.size(); ++d) {
          Axes& axes = mask >> d & 1 ? c.reduced : c.kept;
          axes.shape.push_back(shape[d]), axes.strides.push_back(view.strides[d]);
        }
        SCOPED_TRACE(testing::Message() << testing::PrintToString(std::vector<Index>(shape.begin(), shape.end())) << " " << view.name << ", mask "
                                        << mask);
        body(c);
      }
}

const std::vector<Dims> shapes = {{}, {0}, {1}, {3, 0, 2}, {5}, {37}, {5, 7}, {19, 1, 33}, {2, 3, 4, 5}, {70, 65}, {3, 300, 2}, {2, 1, 3, 1, 17}};

template <class T>
class Sum : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Sum, Floats);

TYPED_TEST(Sum, OverAnyDims) {
  using T = TypeParam;
  test::for_each_target([&] {
    for_cases(shapes, [&](const Case& c) {
      const Block<T> x = test::random_block<T>(c.view.elements, -1, 1, 1);
      Block<T> out(c.outputs());
      sum(out.data(), x.data(), c.kept, c.reduced);
      for (Index i = 0; i < out.size(); ++i) {
        long double want = 0, size = 0;
        for (Index j = 0; j < c.terms(); ++j) want += x[c.at(i, j)], size += std::abs(x[c.at(i, j)]);
        ASSERT_LE(std::abs(out[i] - want), 2 * std::numeric_limits<T>::epsilon() * size) << "output " << i;
      }
    });
  });
}

TYPED_TEST(Sum, ErrorDoesNotGrowWithLength) {
  using T = TypeParam;
  const Index n = 3000001;
  const Block<T> x = test::random_block<T>(n, 0, 1, 2);
  long double want = 0;
  for (const T v : x) want += v;
  const long double tolerance = (sizeof(T) == 4 ? 1 : 4) * static_cast<long double>(std::numeric_limits<T>::epsilon());  // f64 sums go on in f64
  test::for_each_target([&] {
    T rows = 0;
    sum(&rows, x.data(), {{}, {}}, {{n}, {1}});
    EXPECT_LE(std::abs(rows - want), tolerance * want);
    T columns[1];
    sum(columns, x.data(), {{1}, {1}}, {{n / 3}, {3}});
    long double third = 0;
    for (Index i = 0; i < n / 3; ++i) third += x[3 * i];
    EXPECT_LE(std::abs(columns[0] - third), tolerance * third);
  });
}

TYPED_TEST(Sum, NanAndInfinities) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> x(100, 1);
  x[50] = infinity;
  T out = 0;
  sum(&out, x.data(), {{}, {}}, {{100}, {1}});
  EXPECT_EQ(out, infinity);
  x[99] = -infinity;
  sum(&out, x.data(), {{}, {}}, {{100}, {1}});
  EXPECT_TRUE(std::isnan(out));
}

TYPED_TEST(Sum, SameBitsForAllThreadCounts) {
  using T = TypeParam;
  const Index rows = 3001, columns = 517, n = rows * columns;
  const Block<T> x = test::random_block<T>(n, -1, 1, 3);
  const Axes none{{}, {}}, all{{rows, columns}, {columns, 1}}, along_rows{{rows}, {columns}}, along_columns{{columns}, {1}};
  test::expect_same_bits_for_all_thread_counts([&] {
    Block<T> out(1);
    sum(out.data(), x.data(), none, all);
    return out;
  });
  test::expect_same_bits_for_all_thread_counts([&] {
    Block<T> out(columns);
    sum(out.data(), x.data(), along_columns, along_rows);
    return out;
  });
  test::expect_same_bits_for_all_thread_counts([&] {
    Block<T> out(rows);
    sum(out.data(), x.data(), along_rows, along_columns);
    return out;
  });
}

TEST(SumOfWholeNumbers, OverAnyDims) {
  for_cases(shapes, [&](const Case& c) {
    const Block<Index> x = test::random_block<Index>(c.view.elements, -9, 9, 1);
    Block<Index> out(c.outputs());
    sum(out.data(), x.data(), c.kept, c.reduced);
    for (Index i = 0; i < out.size(); ++i) {
      Index want = 0;
      for (Index j = 0; j < c.terms(); ++j) want += x[c.at(i, j)];
      ASSERT_EQ(out[i], want);
    }
  });
}

TEST(AllAndAny, OverAnyDims) {
  for_cases(shapes, [&](const Case& c) {
    for (const double low : {-3.0, 0.0, 1.0}) {  // mostly true, mixed, all true
      Block<bool> x(c.view.elements);
      const std::vector<Index> drawn = test::random_values<Index>(c.view.elements, low, 1, 4);
      for (Index i = 0; i < x.size(); ++i) x[i] = drawn[static_cast<std::size_t>(i)] != 0;
      Block<bool> every(c.outputs()), some(c.outputs());
      all(every.data(), x.data(), c.kept, c.reduced);
      any(some.data(), x.data(), c.kept, c.reduced);
      for (Index i = 0; i < c.outputs(); ++i) {
        bool want_every = true, want_some = false;
        for (Index j = 0; j < c.terms(); ++j) want_every &= x[c.at(i, j)], want_some |= x[c.at(i, j)];
        ASSERT_EQ(every[i], want_every);
        ASSERT_EQ(some[i], want_some);
      }
    }
  });
}

template <class T>
class Search : public testing::Test {
 public:
  static bool is_nan(T v) { return v != v; }
  /// The place of the first element that no other one beats.
  static Index reference(const Block<T>& x, const Case& c, Index output, bool largest) {
    Index best = 0;
    for (Index j = 1; j < c.terms(); ++j) {
      const T v = x[c.at(output, j)], top = x[c.at(output, best)];
      if ((is_nan(v) && !is_nan(top)) || (largest ? v > top : v < top)) best = j;
    }
    return best;
  }
};
using Ordered = testing::Types<float, double, Index>;
TYPED_TEST_SUITE(Search, Ordered);

TYPED_TEST(Search, FirstLargestAndSmallestOverAnyDims) {
  using T = TypeParam;
  test::for_each_target([&] {
    for_cases(shapes, [&](const Case& c) {
      if (c.terms() == 0) return;
      // Few values, so that there are many ties; and some NaN in half of the cases.
      for (const int nans : {0, 1}) {
        const std::vector<Index> drawn = test::random_values<Index>(c.view.elements, -20, 20, 5);
        Block<T> x(c.view.elements);
        for (Index i = 0; i < x.size(); ++i) x[i] = static_cast<T>(drawn[static_cast<std::size_t>(i)]);
        if constexpr (std::is_floating_point_v<T>)
          for (Index i = 0; i < x.size(); ++i)
            if (nans && x[i] == 7) x[i] = std::numeric_limits<T>::quiet_NaN();
        Block<Index> high(c.outputs()), low(c.outputs());
        argmax(high.data(), x.data(), c.kept, c.reduced);
        argmin(low.data(), x.data(), c.kept, c.reduced);
        for (Index i = 0; i < c.outputs(); ++i) {
          ASSERT_EQ(high[i], this->reference(x, c, i, true)) << "output " << i;
          ASSERT_EQ(low[i], this->reference(x, c, i, false)) << "output " << i;
        }
      }
    });
  });
}

TYPED_TEST(Search, LongRowsAndExtremeValues) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::min(), highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  test::for_each_target([&] {
    for (const Index place : {0, 1, 1023, 1024, 4999, 5000}) {
      Block<T> x(5001);
      Index out = -1;
      std::fill(x.begin(), x.end(), lowest);
      argmax(&out, x.data(), {{}, {}}, {{5001}, {1}});
      EXPECT_EQ(out, 0);
      x[place] = static_cast<T>(Limits::lowest() / 2);
      argmax(&out, x.data(), {{}, {}}, {{5001}, {1}});
      EXPECT_EQ(out, place);
      std::fill(x.begin(), x.end(), highest);
      x[place] = lowest;
      argmin(&out, x.data(), {{}, {}}, {{5001}, {1}});
      EXPECT_EQ(out, place);
    }
  });
}

}  // namespace
}  // namespace heed::kernels
