#include <heed/tensor/kernels/elementwise.h>

#include <functional>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;
using test::View;

/// Calls body(a, b) for pairs of views of each shape: every view against row-major, the other way round, and against itself.
void for_pairs(const std::function<void(const View&, const View&)>& body) {
  for (const Dims& shape : test::shapes()) {
    const std::vector<View> views = test::views_of(shape);
    for (const View& view : views) {
      SCOPED_TRACE(testing::Message() << "shape " << testing::PrintToString(std::vector<Index>(shape.begin(), shape.end())) << ", " << view.name);
      body(view, views[0]);
      body(views[0], view);
      body(view, view);
    }
  }
}

template <class T>
class Elementwise : public testing::Test {
 public:
  /// Compares binary(op) with exact(a, b) in long double on all views.
  static void expect_binary(Binary op, const std::function<long double(long double, long double)>& exact, double low, double high, double limit) {
    test::for_each_target([&] {
      for_pairs([&](const View& va, const View& vb) {
        const Block<T> a = test::random_block<T>(va.elements, low, high, 1), b = test::random_block<T>(vb.elements, low, high, 2);
        const Index n = detail::numel(va.shape);
        Block<T> out(n);
        binary<T>(op, out.data(), {a.data(), va.strides}, {b.data(), vb.strides}, va.shape);
        for (Index i = 0; i < n; ++i) {
          const T x = a[va.at(i)], y = b[vb.at(i)];
          ASSERT_LE(test::ulps(out[i], exact(x, y)), limit) << "f(" << x << ", " << y << ") gave " << out[i] << " at " << i;
        }
      });
    });
  }
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Floats);

TYPED_TEST(Elementwise, Arithmetic) {
  using L = long double;
  this->expect_binary(
      Binary::add, [](L x, L y) { return x + y; }, -3, 3, 0.51);
  this->expect_binary(
      Binary::sub, [](L x, L y) { return x - y; }, -3, 3, 0.51);
  this->expect_binary(
      Binary::mul, [](L x, L y) { return x * y; }, -3, 3, 0.51);
  this->expect_binary(
      Binary::div, [](L x, L y) { return x / y; }, -3, 3, 0.51);
  this->expect_binary(
      Binary::maximum, [](L x, L y) { return std::max(x, y); }, -3, 3, 0);
  this->expect_binary(
      Binary::minimum, [](L x, L y) { return std::min(x, y); }, -3, 3, 0);
  this->expect_binary(
      Binary::pow, [](L x, L y) { return std::pow(x, y); }, 0.01, 5, 1.01);
  this->expect_binary(
      Binary::pow_slope, [](L x, L y) { return y * std::pow(x, y - 1); }, 0.01, 5, 2.5);
}

TYPED_TEST(Elementwise, BackwardsOfActivations) {
  using L = long double;
  const L pi = std::acos(-1.0L);
  const auto sigmoid = [](L x) { return 1 / (1 + std::exp(-x)); };
  const auto sigmoid_slope = [](L x) { return 1 / (4 * std::cosh(x / 2) * std::cosh(x / 2)); };
  const auto tanh = [](L x) { return 1 / (std::cosh(x) * std::cosh(x)); };
  const auto silu = [=](L x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); };
  const auto gelu = [=](L x) { return std::erfc(-x / std::sqrt(2.0L)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * pi); };
  const auto gelu_tanh = [=](L x) {
    const L c = 2 * std::sqrt(2 / pi), s = sigmoid(c * (x + 0.044715L * x * x * x));
    return s + x * s * (1 - s) * c * (1 + 3 * 0.044715L * x * x);
  };
  // Relative to the largest value, 1: near the minimum, where the derivative is 0, its own last places are lost.
  const L scale = static_cast<L>(std::numeric_limits<TypeParam>::epsilon());
  const std::vector<std::pair<Binary, std::function<L(L)>>> cases = {{Binary::tanh_backward, tanh},
                                                                     {Binary::sigmoid_backward, sigmoid_slope},
                                                                     {Binary::silu_backward, silu},
                                                                     {Binary::gelu_erf_backward, gelu},
                                                                     {Binary::gelu_tanh_backward, gelu_tanh}};
  test::for_each_target([&] {
    for (const auto& [op, derivative] : cases) {
      const Index n = 3001;
      Block<TypeParam> x(n), g = test::random_block<TypeParam>(n, -1, 1, 3), out(n);
      for (Index i = 0; i < n; ++i) x[i] = static_cast<TypeParam>(0.01) * static_cast<TypeParam>(i - n / 2);
      binary<TypeParam>(op, out.data(), {x.data(), {1}}, {g.data(), {1}}, {n});
      for (Index i = 0; i < n; ++i) ASSERT_LE(std::abs(out[i] - derivative(x[i]) * g[i]), 8 * scale) << "at " << x[i];
      // 1 or 0 at the ends, not infinity times 0.
      const TypeParam above = op == Binary::tanh_backward || op == Binary::sigmoid_backward ? 0 : 3;
      const TypeParam infinity = std::numeric_limits<TypeParam>::infinity();
      const TypeParam ends[] = {infinity, -infinity, 1000, -1000, std::numeric_limits<TypeParam>::quiet_NaN()}, three[] = {3};
      TypeParam at_ends[5];
      binary<TypeParam>(op, at_ends, {ends, {1}}, {three, {0}}, {5});
      EXPECT_EQ(at_ends[0], above);
      EXPECT_EQ(at_ends[1], 0);
      EXPECT_EQ(at_ends[2], above);
      EXPECT_EQ(at_ends[3], 0);
      EXPECT_TRUE(std::isnan(at_ends[4]));
    }
  });
}

TYPED_TEST(Elementwise, PowersByNumberAndSpecialValues) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> bases = {0, T(-0.0), 1, -1, 2, -2, T(0.5), T(-0.5), 3, -3, infinity, -infinity, nan, T(1e-30), T(1.7)};
  const std::vector<T> exponents = {0, T(-0.0), 1, 2, 3, -1, -2, T(0.5), T(-0.5), T(2.5), 7, -7, infinity, -infinity, nan};
  test::for_each_target([&] {
    for (const T y : exponents) {
      const Index n = static_cast<Index>(bases.size());
      const std::vector<T> many(bases.size(), y);
      std::vector<T> by_number(bases.size()), by_tensor(bases.size());
      binary<T>(Binary::pow, by_number.data(), {bases.data(), {1}}, {&y, {0}}, {n});
      binary<T>(Binary::pow, by_tensor.data(), {bases.data(), {1}}, {many.data(), {1}}, {n});
      for (std::size_t i = 0; i < bases.size(); ++i) {
        const T want = std::pow(bases[i], y);
        EXPECT_LE(test::ulps(by_number[i], want), 1) << bases[i] << " ^ " << y;
        EXPECT_LE(test::ulps(by_tensor[i], want), 1) << bases[i] << " ^ " << y;
        EXPECT_TRUE(std::isnan(want) || std::signbit(by_number[i]) == std::signbit(want)) << bases[i] << " ^ " << y;
      }
    }
  });
}

TYPED_TEST(Elementwise, SlopesOfPowersByNumberAndSpecialValues) {
  using T = TypeParam;
  using L = long double;
  const T max = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::denorm_min(), infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> bases = {0, T(-0.0), 1, -1, 2, -2, T(0.5), 3, -3, infinity, T(1e-30), T(1.7), max, least, std::sqrt(least)};
  test::for_each_target([&] {
    for (const T y : {T(0), T(1), T(2), T(3), T(-1), T(-2), T(0.5), T(0.3), T(-0.5), T(2.5), T(7)}) {
      const Index n = static_cast<Index>(bases.size());
      const std::vector<T> many(bases.size(), y);
      std::vector<T> by_number(bases.size()), by_tensor(bases.size());
      binary<T>(Binary::pow_slope, by_number.data(), {bases.data(), {1}}, {&y, {0}}, {n});
      binary<T>(Binary::pow_slope, by_tensor.data(), {bases.data(), {1}}, {many.data(), {1}}, {n});
      for (std::size_t i = 0; i < bases.size(); ++i) {
        const L want = y == 0 ? 0 : y * std::pow(static_cast<L>(bases[i]), static_cast<L>(y) - 1);
        EXPECT_LE(test::ulps(by_number[i], want), 2) << bases[i] << " ^ " << y;
        EXPECT_LE(test::ulps(by_tensor[i], want), 2) << bases[i] << " ^ " << y;
      }
    }
  });
}

TYPED_TEST(Elementwise, MaximumAndMinimumHandOnNan) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> a = {nan, 1, nan, -infinity, infinity}, b = {1, nan, nan, nan, 2};
  test::for_each_target([&] {
    for (const Binary op : {Binary::maximum, Binary::minimum}) {
      std::vector<T> out(5);
      binary<T>(op, out.data(), {a.data(), {1}}, {b.data(), {1}}, {5});
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(i)])) << i;
      EXPECT_EQ(out[4], op == Binary::maximum ? infinity : T{2});
    }
  });
}

TYPED_TEST(Elementwise, DropLeavesNothingWhereTheFactorIsZero) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  std::vector<T> a, b;
  for (int i = 0; i < 37; ++i)
    for (const T x : {nan, infinity, -infinity, T{-3}}) a.push_back(x), b.push_back(i % 3 == 0 ? T{0} : T{1.25});
  const Index n = static_cast<Index>(a.size());
  test::for_each_target([&] {
    std::vector<T> out(a.size());
    binary<T>(Binary::drop, out.data(), {a.data(), {1}}, {b.data(), {1}}, {n});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const T want = b[i] == 0 ? T{0} : a[i] * b[i];
      EXPECT_TRUE(out[i] == want || (std::isnan(out[i]) && std::isnan(want))) << i;
      EXPECT_TRUE(b[i] != 0 || !std::signbit(out[i])) << i;
    }
  });
}

TYPED_TEST(Elementwise, UnaryOverViewsAndInPlace) {
  using T = TypeParam;
  test::for_each_target([&] {
    for_pairs([&](const View& view, const View&) {
      const Block<T> x = test::random_block<T>(view.elements, -2, 2, 4);
      const Index n = detail::numel(view.shape);
      Block<T> out(n);
      unary<T>(Unary::square, out.data(), {x.data(), view.strides}, view.shape);
      for (Index i = 0; i < n; ++i) ASSERT_EQ(out[i], x[view.at(i)] * x[view.at(i)]);
      unary<T>(Unary::neg, out.data(), {out.data(), detail::row_major_strides(view.shape)}, view.shape);
      for (Index i = 0; i < n; ++i) ASSERT_EQ(out[i], -x[view.at(i)] * x[view.at(i)]);
    });
  });
}

TYPED_TEST(Elementwise, AccumulateAddsInPlace) {
  using T = TypeParam;
  test::for_each_target([&] {
    for_pairs([&](const View& view, const View&) {
      const Index n = detail::numel(view.shape);
      const Block<T> x = test::random_block<T>(view.elements, -2, 2, 4), before = test::random_block<T>(n, -2, 2, 5);
      Block<T> acc = before;
      accumulate<T>(acc.data(), {x.data(), view.strides}, view.shape);
      for (Index i = 0; i < n; ++i) ASSERT_EQ(acc[i], before[i] + x[view.at(i)]);
    });
  });
}

TYPED_TEST(Elementwise, SameBitsForAllThreadCounts) {
  using T = TypeParam;
  const Index rows = 403, columns = 1001, n = rows * columns;
  const Block<T> a = test::random_block<T>(n, 0.1, 3, 6), b = test::random_block<T>(n, 0.1, 3, 7);
  test::expect_same_bits_for_all_thread_counts([&] {
    Block<T> out(n);
    binary<T>(Binary::pow, out.data(), {a.data(), {1, rows}}, {b.data(), {columns, 1}}, {rows, columns});
    unary<T>(Unary::gelu_erf, out.data(), {out.data(), {columns, 1}}, {rows, columns});
    binary<T>(Binary::div, out.data(), {out.data(), {columns, 1}}, {b.data(), {0, 1}}, {rows, columns});
    return out;
  });
}

TEST(ElementwiseIndex, ArithmeticWraps) {
  const Index low = std::numeric_limits<Index>::min(), high = std::numeric_limits<Index>::max();
  const std::vector<Index> a = {1, -5, high, low, 7, 3}, b = {2, 3, 1, 1, -7, 3};
  const auto run = [&](Binary op) {
    std::vector<Index> out(a.size());
    binary<Index>(op, out.data(), {a.data(), {1}}, {b.data(), {1}}, {6});
    return out;
  };
  const auto apply = [&](Unary op) {
    std::vector<Index> out(a.size());
    unary<Index>(op, out.data(), {a.data(), {1}}, {6});
    return out;
  };
  test::for_each_target([&] {
    EXPECT_EQ(run(Binary::add), (std::vector<Index>{3, -2, low, low + 1, 0, 6}));
    EXPECT_EQ(run(Binary::sub), (std::vector<Index>{-1, -8, high - 1, high, 14, 0}));
    EXPECT_EQ(run(Binary::mul), (std::vector<Index>{2, -15, high, low, -49, 9}));
    EXPECT_EQ(run(Binary::maximum), (std::vector<Index>{2, 3, high, 1, 7, 3}));
    EXPECT_EQ(run(Binary::minimum), (std::vector<Index>{1, -5, 1, low, -7, 3}));
    EXPECT_EQ(apply(Unary::neg), (std::vector<Index>{-1, 5, -high, low, -7, -3}));
    EXPECT_EQ(apply(Unary::abs), (std::vector<Index>{1, 5, high, low, 7, 3}));
    EXPECT_EQ(apply(Unary::sign), (std::vector<Index>{1, -1, 1, -1, 1, 1}));
    EXPECT_EQ(apply(Unary::square), (std::vector<Index>{1, 25, 1, 0, 49, 9}));
    EXPECT_EQ(apply(Unary::relu), (std::vector<Index>{1, 0, high, 0, 7, 3}));
  });
}

template <class T>
class Truth : public testing::Test {};
using Elements = testing::Types<float, double, Index, bool>;
TYPED_TEST_SUITE(Truth, Elements);

TYPED_TEST(Truth, Compare) {
  using T = TypeParam;
  const std::vector<std::pair<Compare, std::function<bool(T, T)>>> cases = {
      {Compare::eq, [](T x, T y) { return x == y; }}, {Compare::ne, [](T x, T y) { return x != y; }}, {Compare::lt, [](T x, T y) { return x < y; }},
      {Compare::le, [](T x, T y) { return x <= y; }}, {Compare::gt, [](T x, T y) { return x > y; }},  {Compare::ge, [](T x, T y) { return x >= y; }}};
  test::for_each_target([&] {
    for_pairs([&](const View& va, const View& vb) {
      Block<T> a(va.elements), b(vb.elements);
      // Whole numbers from a small range, so that many are equal.
      const std::vector<Index> from_a = test::random_values<Index>(va.elements, 0, 2, 1), from_b = test::random_values<Index>(vb.elements, 0, 2, 2);
      for (Index i = 0; i < a.size(); ++i) a[i] = static_cast<T>(from_a[static_cast<std::size_t>(i)]);
      for (Index i = 0; i < b.size(); ++i) b[i] = static_cast<T>(from_b[static_cast<std::size_t>(i)]);
      const Index n = detail::numel(va.shape);
      for (const auto& [op, holds] : cases) {
        Block<bool> out(n);
        compare<T>(op, out.data(), {a.data(), va.strides}, {b.data(), vb.strides}, va.shape);
        for (Index i = 0; i < n; ++i) ASSERT_EQ(out[i], holds(a[va.at(i)], b[vb.at(i)]));
      }
    });
  });
}

TYPED_TEST(Truth, Where) {
  using T = TypeParam;
  test::for_each_target([&] {
    for (const Dims& shape : test::shapes()) {
      const std::vector<View> views = test::views_of(shape);
      for (std::size_t i = 0; i < views.size(); ++i) {
        // Each kind of view in each place, beside other kinds.
        const View &vc = views[i], &va = views[(i * 2 + 1) % views.size()], &vb = views[(i + 2) % views.size()];
        const Block<bool> cond = test::random_block<bool>(vc.elements, 0, 1, 1);
        const Block<T> a = test::random_block<T>(va.elements, 0, 100, 2), b = test::random_block<T>(vb.elements, 0, 100, 3);
        const Index n = detail::numel(shape);
        Block<T> out(n);
        where<T>(out.data(), {cond.data(), vc.strides}, {a.data(), va.strides}, {b.data(), vb.strides}, shape);
        for (Index j = 0; j < n; ++j) ASSERT_EQ(out[j], cond[vc.at(j)] ? a[va.at(j)] : b[vb.at(j)]) << vc.name << ", " << va.name << ", " << vb.name;
      }
    }
  });
}

TYPED_TEST(Truth, WhereInPlace) {
  using T = TypeParam;
  test::for_each_target([&] {
    for (const Index step : {0, 1}) {
      const Index n = 77;
      const Block<bool> cond = test::random_block<bool>(n, 0, 1, 1);
      const Block<T> before = test::random_block<T>(n, 0, 9, 2), other = test::random_block<T>(n, 0, 9, 3);
      Block<T> x = before;
      where<T>(x.data(), {cond.data(), {step}}, {other.data(), {0}}, {x.data(), {1}}, {n});
      for (Index i = 0; i < n; ++i) ASSERT_EQ(x[i], cond[i * step] ? other[0] : before[i]);
    }
  });
}

TEST(TruthValues, LogicalAndNot) {
  test::for_each_target([&] {
    for_pairs([&](const View& va, const View& vb) {
      const Block<bool> a = test::random_block<bool>(va.elements, 0, 1, 1), b = test::random_block<bool>(vb.elements, 0, 1, 2);
      const Index n = detail::numel(va.shape);
      Block<bool> both(n), either(n), inverse(n);
      logical(Logical::all_of, both.data(), {a.data(), va.strides}, {b.data(), vb.strides}, va.shape);
      logical(Logical::any_of, either.data(), {a.data(), va.strides}, {b.data(), vb.strides}, va.shape);
      logical_not(inverse.data(), {a.data(), va.strides}, va.shape);
      for (Index i = 0; i < n; ++i) {
        const bool x = a[va.at(i)], y = b[vb.at(i)];
        ASSERT_EQ(both[i], x && y);
        ASSERT_EQ(either[i], x || y);
        ASSERT_EQ(inverse[i], !x);
      }
    });
  });
}

TYPED_TEST(Elementwise, IsNanAndIsFinite) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> kinds = {0,
                                T(-0.0),
                                1,
                                -1,
                                infinity,
                                -infinity,
                                std::numeric_limits<T>::quiet_NaN(),
                                std::numeric_limits<T>::max(),
                                std::numeric_limits<T>::lowest(),
                                std::numeric_limits<T>::denorm_min()};
  test::for_each_target([&] {
    for_pairs([&](const View& view, const View&) {
      Block<T> x(view.elements);
      for (Index i = 0; i < x.size(); ++i) x[i] = kinds[static_cast<std::size_t>(i) % kinds.size()];
      const Index n = detail::numel(view.shape);
      Block<bool> is_nan(n), is_finite(n);
      isnan<T>(is_nan.data(), {x.data(), view.strides}, view.shape);
      isfinite<T>(is_finite.data(), {x.data(), view.strides}, view.shape);
      for (Index i = 0; i < n; ++i) {
        ASSERT_EQ(is_nan[i], std::isnan(x[view.at(i)]));
        ASSERT_EQ(is_finite[i], std::isfinite(x[view.at(i)]));
      }
    });
  });
}

TYPED_TEST(Elementwise, ComparisonsWithNanAreFalse) {
  const TypeParam a[] = {std::numeric_limits<TypeParam>::quiet_NaN(), 1}, b[] = {1, std::numeric_limits<TypeParam>::quiet_NaN()};
  for (const Compare op : {Compare::eq, Compare::ne, Compare::lt, Compare::le, Compare::gt, Compare::ge}) {
    bool out[2];
    compare<TypeParam>(op, out, {a, {1}}, {b, {1}}, {2});
    EXPECT_EQ(out[0], op == Compare::ne);
    EXPECT_EQ(out[1], op == Compare::ne);
  }
}

}  // namespace
}  // namespace heed::kernels
