#include <gmock/gmock.h>
#include <heed/tensor/factory.h>

#include <cstdint>
#include <limits>

// From one element type to another: what is exact, what is rounded, and what is refused.

namespace heed {
namespace {

using testing::ElementsAre;

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
constexpr Index least = std::numeric_limits<Index>::min(), most = std::numeric_limits<Index>::max(), odd = (Index{1} << 53) + 1;

TEST(Conversion, WholeNumbersComeBackAsTheyWere) {
  const Tensor t = tensor({least, -odd, 0, odd, most}, i64);
  EXPECT_THAT(t.to_vector<Index>(), ElementsAre(least, -odd, 0, odd, most));
  EXPECT_THAT(t.to(i64).to_vector<long long>(), ElementsAre(least, -odd, 0, odd, most));
  EXPECT_EQ(tensor(most, i64).item<std::uint64_t>(), static_cast<std::uint64_t>(most));
  EXPECT_EQ(tensor(-128, i64).item<std::int8_t>(), -128);
  EXPECT_EQ(tensor(255, f32).item<std::uint8_t>(), 255);
  EXPECT_EQ(tensor(odd, i64).item<double>(), 0x1p53) << "rounded to what a double holds";
}

TEST(Conversion, FractionsAreCutOffAtThePoint) {
  EXPECT_THAT(tensor({2.75, -2.75, -0.5}, f64).to_vector<Index>(), ElementsAre(2, -2, 0));
  EXPECT_THAT(tensor({2.75, -2.75, -0.5}).to(i64).to_vector<Index>(), ElementsAre(2, -2, 0));
  EXPECT_EQ(tensor(-0.75).item<unsigned>(), 0u);
  EXPECT_EQ(tensor(2147483647.5, f64).item<int>(), std::numeric_limits<int>::max());
  EXPECT_EQ(tensor(-2147483648.5, f64).item<int>(), std::numeric_limits<int>::min());
  EXPECT_EQ(tensor(-0x1p63, f64).item<Index>(), least);
}

/// item and to_vector refuse what a cast would make anything of.
TEST(Conversion, WhatAnIntegerCannotHoldIsAnError) {
  for (const double x : {nan, infinity, -infinity, 0x1p63, 1e300, -1e300})
    for (const DType dtype : {f32, f64}) {
      EXPECT_THROW((void)full({}, x, dtype).item<Index>(), DTypeError) << x;
      EXPECT_THROW((void)full({2}, x, dtype).to_vector<Index>(), DTypeError) << x;
      EXPECT_THROW((void)full({}, x, dtype).item<int>(), DTypeError) << x;
    }
  for (const Index x : {Index{1} << 31, -(Index{1} << 31) - 1, least, most}) EXPECT_THROW((void)tensor(x, i64).item<int>(), DTypeError) << x;
  EXPECT_THROW((void)tensor(-1, i64).item<std::uint64_t>(), DTypeError);
  EXPECT_THROW((void)tensor(-1).item<unsigned>(), DTypeError);
  EXPECT_THROW((void)tensor(256, i64).item<std::uint8_t>(), DTypeError);
  try {
    (void)tensor({1, odd}, i64).to_vector<int>();
    ADD_FAILURE();
  } catch (const DTypeError& e) {
    EXPECT_STREQ(e.what(), "to_vector: 9007199254740993 is not within -2147483648 and 2147483647, what the integer that is asked for can hold");
  }
}

/// Many at once are not looked at one by one: .to takes the nearest.
TEST(Conversion, OfTensorsTakesTheNearestWholeNumberAndZeroForNaN) {
  for (const DType dtype : {f32, f64})
    EXPECT_THAT(tensor({infinity, 1e30, 0x1p63, -0x1p63, -1e30, -infinity, nan}, dtype).to(i64).to_vector<Index>(),
                ElementsAre(most, most, most, least, least, least, 0));
  EXPECT_THAT(tensor({nan, 0.0, -0.0, 0.25}, f64).to(boolean).to_vector<bool>(), ElementsAre(true, false, false, true));
}

/// Unsigned numbers too large for an index are out of range: they do not count from the end.
TEST(Conversion, OfIndicesDoesNotWrap) {
  const Tensor x = zeros({2, 3});
  EXPECT_THROW((void)x[std::numeric_limits<std::uint64_t>::max()], IndexError);
  EXPECT_THROW((void)zeros(std::numeric_limits<std::uint64_t>::max()), ShapeError);
  EXPECT_EQ(x[std::size_t{1}].shape(), Dims{3});
}

}  // namespace
}  // namespace heed
