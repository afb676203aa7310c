#include <heed/tensor/factory.h>
#include <heed/tensor/format.h>
#include <heed/tensor/random.h>

#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

#include "file_helpers.h"

namespace heed {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  EXPECT_EQ(fmt::format("{}", value), out.str());
  return out.str();
}

TEST(Print, Types) {
  EXPECT_EQ(printed(f32), "f32");
  EXPECT_EQ(printed(boolean), "boolean");
  EXPECT_EQ(printed(Dims()), "()");
  EXPECT_EQ(printed(Dims({3})), "(3,)");
  EXPECT_EQ(printed(Dims({2, 3})), "(2, 3)");
  EXPECT_EQ(printed(Dims({-1, 0, 7})), "(-1, 0, 7)");
}

TEST(Print, WholeNumbers) {
  EXPECT_EQ(printed(tensor({{1, 2, 3}, {4, 5, 6}})), "[[1, 2, 3],\n [4, 5, 6]]");
  EXPECT_EQ(printed(tensor({1, -20, 300})), "[  1, -20, 300]");
  EXPECT_EQ(printed(tensor({1, 16777216})), "[       1, 16777216]");
  EXPECT_EQ(printed(tensor({1, -20}, i64)), "[  1, -20], i64");
  EXPECT_EQ(printed(tensor(std::numeric_limits<Index>::min(), i64)), "-9223372036854775808, i64");
  EXPECT_EQ(printed(tensor({{true}, {false}}, boolean)), "[[ true],\n [false]], boolean");
}

TEST(Print, FractionsHaveOnePrecision) {
  EXPECT_EQ(printed(tensor({1.5, -2.25, 3})), "[ 1.50, -2.25,  3.00]");
  EXPECT_EQ(printed(tensor({0.1, 0.2, 0.3})), "[0.1, 0.2, 0.3]");
  EXPECT_EQ(printed(tensor({1.0 / 3, 20}, f64)), "[ 0.3333, 20.0000], f64");
  EXPECT_EQ(printed(tensor({0.5, 1.25e-3})), "[0.50000, 0.00125]");
  EXPECT_EQ(printed(tensor(3.14159265358979, f64)), "3.14159, f64");
  EXPECT_EQ(printed(tensor({1.0000001, 2}, f64)), "[1.0, 2.0], f64");
}

TEST(Print, WideRangesHaveAnExponent) {
  EXPECT_EQ(printed(tensor({1, 1.5e-5})), "[1.0e+00, 1.5e-05]");
  EXPECT_EQ(printed(tensor(1e-5)), "1e-05");
  EXPECT_EQ(printed(tensor(123456.7)), "1.23457e+05");
  EXPECT_EQ(printed(tensor({1e8, 0})), "[1e+08, 0e+00]");
}

// PR-D1
TEST(Print, ValuesThatAreNotFiniteOrLarge) {
  EXPECT_EQ(printed(tensor({nan, infinity, -infinity, 3e19})), "[  nan,   inf,  -inf, 3e+19]");
  EXPECT_EQ(printed(tensor({1e308, -1e-308, 0}, f64)), "[ 1e+308, -1e-308,   0e+00], f64");
  EXPECT_EQ(printed(tensor({0.1, 16777217})), "[1.00000e-01, 1.67772e+07]");
  EXPECT_EQ(printed(tensor({-nan, infinity})), "[nan, inf]");
  EXPECT_EQ(printed(tensor({5e-324, 1.7976931348623157e308}, f64)), "[4.94066e-324, 1.79769e+308], f64");
  EXPECT_EQ(printed(tensor({-0.0, 1})), "[-0,  1]");
}

TEST(Print, EmptyScalarAndUndefined) {
  EXPECT_EQ(printed(tensor(2.5)), "2.5");
  EXPECT_EQ(printed(tensor(true, boolean)), "true, boolean");
  EXPECT_EQ(printed(zeros({0, 3})), "empty (0, 3)");
  EXPECT_EQ(printed(zeros(0, i64)), "empty (0,), i64");
  EXPECT_EQ(printed(Tensor()), "undefined");
}

TEST(Print, DeepTensorsHaveEmptyLines) {
  EXPECT_EQ(printed(zeros({2, 1, 2})), "[[[0, 0]],\n\n [[0, 0]]]");
  EXPECT_EQ(printed(zeros({1, 2, 1, 1})), "[[[[0]],\n\n  [[0]]]]");
}

TEST(Print, LongRowsAreBroken) {
  EXPECT_EQ(printed(full({12}, 1234567)),
            "[1234567, 1234567, 1234567, 1234567, 1234567, 1234567, 1234567, 1234567,\n 1234567, 1234567, 1234567, 1234567]");
  for (Index n : {30, 100, 1000}) {
    std::istringstream lines(printed(arange(0, static_cast<double>(n))));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(Print, LargeTensorsAreAbbreviated) {
  EXPECT_EQ(printed(arange(0, 1001)), "[   0,    1,    2, ...,  998,  999, 1000]");
  EXPECT_EQ(printed(arange(0, 1000)).find("..."), std::string::npos);
  const std::string matrix = printed(zeros({100, 100}));
  const std::string row = "[0, 0, 0, ..., 0, 0, 0]";
  EXPECT_EQ(matrix, "[" + row + ",\n " + row + ",\n " + row + ",\n ...,\n " + row + ",\n " + row + ",\n " + row + "]");
  EXPECT_EQ(printed(zeros({2, 600})), "[" + row + ",\n " + row + "]");
  // With many dims even three at each end are too many.
  const std::string deep = printed(ones({6, 6, 6, 6, 6, 6, 6, 6}));
  EXPECT_LE(std::count(deep.begin(), deep.end(), '1'), 1000);
  EXPECT_GE(std::count(deep.begin(), deep.end(), '1'), 256);
}

TEST(Print, ViewsShowTheirLogicalOrder) {
  const Tensor x = tensor({{0, 1, 2}, {3, 4, 5}});
  EXPECT_EQ(printed(detail::make_view(x, {{3, 2}, {1, 3}, 0})), "[[0, 3],\n [1, 4],\n [2, 5]]");
  EXPECT_EQ(printed(detail::make_view(x, {{2}, {3}, 1})), "[1, 4]");
  // A row repeated very often takes no memory, and printing it takes none either.
  EXPECT_EQ(printed(detail::make_view(x, {{Index{1} << 50, 3}, {0, 1}, 0})).substr(0, 11), "[[0, 1, 2],");
}

TEST(Print, StreamsStayAsTheyWere) {
  std::ostringstream out;
  out << std::hex << std::scientific << std::setprecision(2) << std::setfill('*');
  const auto flags = out.flags();
  out << tensor({1.5, 2.5}) << tensor({10}, i64) << Dims({16}) << f64;
  EXPECT_EQ(out.str(), "[1.5, 2.5][10], i64(16,)f64");
  EXPECT_EQ(out.flags(), flags);
  EXPECT_EQ(out.precision(), 2);
  EXPECT_EQ(out.fill(), '*');
}

}  // namespace
}  // namespace heed
