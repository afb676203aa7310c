#include <gmock/gmock.h>
#include <heed/tensor/factory.h>

#include <cmath>
#include <limits>

#include "file_helpers.h"

namespace heed {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::error_of;

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

TEST(Factory, BracesGiveTheShape) {
  EXPECT_EQ(tensor(1).shape(), Dims());
  EXPECT_EQ(tensor({1}).shape(), Dims({1}));
  EXPECT_EQ(tensor({1, 2, 3}).shape(), Dims({3}));
  EXPECT_EQ(tensor({{1}}).shape(), Dims({1, 1}));
  EXPECT_EQ(tensor({{1}, {2}}).shape(), Dims({2, 1}));
  EXPECT_EQ(tensor({{1, 0, -1}}).shape(), Dims({1, 3}));
  EXPECT_EQ(tensor({{1, 2, 3}, {4, 5, 6}}).shape(), Dims({2, 3}));
  EXPECT_EQ(tensor({{{1, 2}}, {{3, 4}}, {{5, 6}}}).shape(), Dims({3, 1, 2}));
  EXPECT_EQ(tensor({{{{{{{{1}}}}}}}}).shape(), Dims({1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(tensor({}).shape(), Dims({0}));
  EXPECT_EQ(tensor({{}, {}}).shape(), Dims({2, 0}));
  EXPECT_EQ(tensor({{}}).shape(), Dims({1, 0}));
}

TEST(Factory, BracesGiveTheValuesInOrder) {
  EXPECT_THAT(tensor({{1, 2, 3}, {4, 5, 6}}).to_vector<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(tensor({0.5, -1.0}, f64).to_vector<double>(), ElementsAre(0.5, -1));
  EXPECT_THAT(tensor({true, false}, boolean).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT(tensor({0, 1}, boolean).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_EQ(tensor(2.5).item<float>(), 2.5f);
  EXPECT_EQ(tensor(3).dtype(), f32);
}

TEST(Factory, WholeNumbersStayExact) {
  const Index odd = (Index{1} << 53) + 1;
  EXPECT_EQ(tensor(odd, i64).item<Index>(), odd);
  EXPECT_EQ(tensor(std::numeric_limits<Index>::min(), i64).item<Index>(), std::numeric_limits<Index>::min());
  EXPECT_EQ(tensor(std::numeric_limits<Index>::max(), i64).item<Index>(), std::numeric_limits<Index>::max());
  EXPECT_EQ(tensor({3.0, -2.0}, i64).to_vector<Index>()[1], -2);
  EXPECT_EQ(tensor(std::numeric_limits<std::uint64_t>::max(), f64).item<double>(), 0x1p64);
  for (const Index whole : {odd, -odd, std::numeric_limits<Index>::min(), std::numeric_limits<Index>::max()}) {
    EXPECT_THAT(full({2}, whole, i64).to_vector<Index>(), ElementsAre(whole, whole));
    EXPECT_EQ(zeros({}, i64).fill_(whole).item<Index>(), whole);
    EXPECT_EQ(full({}, whole, f64).item<double>(), static_cast<double>(whole)) << "rounded once";
    EXPECT_EQ(full({}, whole).item<float>(), static_cast<float>(whole));
  }
  EXPECT_EQ(full({}, static_cast<std::uint64_t>(odd), i64).item<Index>(), odd);
}

TEST(Factory, NumbersThatTheTypeCannotHoldAreErrors) {
  EXPECT_THAT(error_of<DTypeError>([] { tensor({1.0, 2.5}, i64); }), HasSubstr("tensor: an i64 element is a whole number: 2.5"));
  EXPECT_THAT(error_of<DTypeError>([] { tensor(nan, i64); }), HasSubstr("i64"));
  EXPECT_THAT(error_of<DTypeError>([] { tensor(0x1p63, i64); }), HasSubstr("out of the range of an i64 element"));
  EXPECT_EQ(tensor(-0x1p63, i64).item<Index>(), std::numeric_limits<Index>::min());
  EXPECT_THAT(error_of<DTypeError>([] { tensor(std::numeric_limits<std::uint64_t>::max(), i64); }), HasSubstr("out of the range"));
  EXPECT_THAT(error_of<DTypeError>([] { tensor({0, 2}, boolean); }), HasSubstr("a boolean element is 0 or 1: 2"));
  EXPECT_THAT(error_of<DTypeError>([] { tensor((Index{1} << 53) + 1, boolean); }), HasSubstr("9007199254740993"));
  EXPECT_THAT(error_of<DTypeError>([] { full({2}, std::uint64_t{1} << 63, i64); }), HasSubstr("full: out of the range of an i64 element"));
  EXPECT_THAT(error_of<DTypeError>([] { zeros({2}, i64).fill_(std::uint64_t{1} << 63); }), HasSubstr("out of the range of an i64 element"));
  EXPECT_THAT(error_of<DTypeError>([] { zeros({2}, i64).fill_(nan); }), HasSubstr("i64"));
  EXPECT_THAT(error_of<DTypeError>([] { full({2}, 0.5, i64); }), HasSubstr("full: an i64 element is a whole number: 0.5"));
  EXPECT_THAT(error_of<DTypeError>([] { full({2}, nan, boolean); }), HasSubstr("full: a boolean element is 0 or 1: nan"));
}

TEST(Factory, RaggedBracesNameThePlace) {
  EXPECT_EQ(error_of<ShapeError>([] { tensor({{1, 2, 3}, {4, 5}}); }), "tensor: ragged braces: [1] has size 2 where 3 is expected");
  EXPECT_EQ(error_of<ShapeError>([] { tensor({{{1}, {2}}, {{3}, {4, 5}}}); }), "tensor: ragged braces: [1][1] has size 2 where 1 is expected");
  EXPECT_EQ(error_of<ShapeError>([] { tensor({{1, 2}, 3}); }), "tensor: ragged braces: [1] is a number where a list of 2 is expected");
  EXPECT_EQ(error_of<ShapeError>([] { tensor({1, {2, 3}}); }), "tensor: ragged braces: [1] is a list where a number is expected");
  EXPECT_EQ(error_of<ShapeError>([] { tensor({{}, {1}}); }), "tensor: ragged braces: [1] has size 1 where 0 is expected");
  EXPECT_THAT(error_of<ShapeError>([] { tensor({{{{{{{{{1}}}}}}}}}); }), HasSubstr("8"));
}

TEST(Factory, FillsByValue) {
  for (DType dtype : {f32, f64, i64, boolean}) {
    EXPECT_EQ(zeros({2, 3}, dtype).to_vector<double>(), std::vector<double>(6, 0));
    EXPECT_EQ(ones({2, 3}, dtype).to_vector<double>(), std::vector<double>(6, 1));
    EXPECT_EQ(full({2}, 1, dtype).dtype(), dtype);
    EXPECT_EQ(empty({2, 5}, dtype).shape(), Dims({2, 5}));
  }
  EXPECT_EQ(full({3}, -7, i64).to_vector<Index>(), std::vector<Index>(3, -7));
  EXPECT_EQ(full({}, infinity).item<float>(), std::numeric_limits<float>::infinity());
  EXPECT_EQ(zeros(3).shape(), Dims({3}));
  EXPECT_EQ(zeros({0, 3}).numel(), 0);
}

TEST(Factory, SizesAreCheckedBeforeAnythingIsAllocated) {
  EXPECT_THAT(error_of<ShapeError>([] { zeros({2, -1}); }), HasSubstr("zeros: a size is negative: (2, -1)"));
  EXPECT_THAT(error_of<ShapeError>([] { ones({Index{1} << 40, Index{1} << 40}); }), HasSubstr("ones: "));
  EXPECT_THAT(error_of<ShapeError>([] { full({Index{1} << 61}, 1, f64); }), HasSubstr("full: "));
  EXPECT_THAT(error_of<ShapeError>([] { empty({-1}); }), HasSubstr("empty: "));
  EXPECT_THAT(error_of<ShapeError>([] { eye(-1); }), HasSubstr("eye: a size is negative"));
  EXPECT_THAT(error_of<ShapeError>([] { eye(Index{1} << 31, f64); }), HasSubstr("eye: "));
}

TEST(Factory, Eye) {
  EXPECT_THAT(eye(3, i64).to_vector<Index>(), ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1));
  EXPECT_THAT(eye(1, boolean).to_vector<bool>(), ElementsAre(true));
  EXPECT_EQ(eye(0).shape(), Dims({0, 0}));
}

TEST(Factory, ArangeStopsBeforeTheEnd) {
  EXPECT_THAT(arange(0, 5, 1, i64).to_vector<Index>(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(arange(5, 0, -2, i64).to_vector<Index>(), ElementsAre(5, 3, 1));
  EXPECT_THAT(arange(0, 2.5, 1, i64).to_vector<Index>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(arange(1, 2, 0.25).to_vector<float>(), ElementsAre(1, 1.25f, 1.5f, 1.75f));
  EXPECT_EQ(arange(3, 3).shape(), Dims({0}));
  EXPECT_THAT(arange(3).to_vector<float>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(arange(2.5, f64).to_vector<double>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(arange(zeros({2, 3}).size(1), i64).to_vector<Index>(), ElementsAre(0, 1, 2));
  EXPECT_EQ(arange(0).shape(), Dims({0}));
  EXPECT_EQ(arange(0, 1, 0.1, f64).numel(), 10);
  // (1.3 - 1) / 0.1 is rounded above 3, and element 3 would be the end itself.
  EXPECT_EQ(arange(1, 1.3, 0.1, f64).numel(), 3);
  // The quotient underflows to 0, and yet start lies before end.
  EXPECT_EQ(arange(0, 5e-324, 2, f64).numel(), 1);
  for (int tenths = 1; tenths < 300; ++tenths) {
    const double end = tenths * 0.1;
    const auto values = arange(0, end, 0.1, f64).to_vector<double>();
    ASSERT_LT(values.back(), end);
    ASSERT_GE(static_cast<double>(values.size()) * 0.1, end);
  }
}

TEST(Factory, ArangeIsExactInI64) {
  const double big = 0x1p53;
  EXPECT_THAT(arange(big, big + 4, 2, i64).to_vector<Index>(), ElementsAre(Index{1} << 53, (Index{1} << 53) + 2));
  EXPECT_THAT(arange(-0x1p63, 0x1p62, 0x1p62, i64).to_vector<Index>(), ElementsAre(std::numeric_limits<Index>::min(), -(Index{1} << 62), 0));
  constexpr Index odd = (Index{1} << 53) + 1, quarter = Index{1} << 62, least = std::numeric_limits<Index>::min(),
                  most = std::numeric_limits<Index>::max();
  const auto range = [](const detail::Number& start, const detail::Number& end, const detail::Number& step) {
    return arange(start, end, step, i64).to_vector<Index>();
  };
  EXPECT_THAT(range(odd, odd + 3, 1), ElementsAre(odd, odd + 1, odd + 2));
  EXPECT_THAT(range(quarter, quarter + 3, 1), ElementsAre(quarter, quarter + 1, quarter + 2));
  EXPECT_THAT(range(odd + 3, odd, -2), ElementsAre(odd + 3, odd + 1));
  EXPECT_THAT(range(most - 2, most, 1), ElementsAre(most - 2, most - 1));
  EXPECT_THAT(range(least + 2, least, -1), ElementsAre(least + 2, least + 1));
  EXPECT_THAT(range(least, most, quarter), ElementsAre(least, -quarter, 0, quarter));
  EXPECT_THAT(range(most, least, -quarter), ElementsAre(most, quarter - 1, -1, -quarter - 1));
  EXPECT_THAT(range(0, most, most), ElementsAre(0));
  EXPECT_THAT(range(most, most, 1), ElementsAre());
  // Ends that no element could be.
  EXPECT_THAT(range(most - 1, 0x1p63, 1), ElementsAre(most - 1, most));
  EXPECT_THAT(range(most - 1, std::numeric_limits<std::uint64_t>::max(), 1), ElementsAre(most - 1, most));
  EXPECT_THAT(range(least + 1, -1e300, -1), ElementsAre(least + 1, least));
  EXPECT_THAT(range(-2, -0.5, 1), ElementsAre(-2, -1));
  EXPECT_THAT(range(1, -1.5, -1), ElementsAre(1, 0, -1));
  EXPECT_THAT(range(0, -0.5, -1), ElementsAre(0));
}

TEST(Factory, ArangeRefusesWhatHasNoLength) {
  EXPECT_THAT(error_of<ShapeError>([] { arange(0, 5, 0); }), HasSubstr("arange: step is 0"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(5, 0); }), HasSubstr("arange: step 1 leads away from end: start 5, end 0"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(-1); }), HasSubstr("arange: step 1 leads away from end: start 0, end -1"));
  EXPECT_THAT(error_of<DTypeError>([] { arange(2, boolean); }), HasSubstr("arange: "));
  EXPECT_THAT(error_of<ShapeError>([] { arange(0, infinity); }), HasSubstr("finite"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(nan, 1); }), HasSubstr("finite"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(0, 1, infinity); }), HasSubstr("finite"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(-1e308, 1e308, 1); }), HasSubstr("too many elements"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(0, 1e300, 1e-300); }), HasSubstr("too many elements"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(0, 0x1p61, 1, f64); }), HasSubstr("arange: "));
  EXPECT_EQ(error_of<ShapeError>([] { arange((Index{1} << 53) + 1, Index{1} << 53, 1, i64); }),
            "arange: step 1 leads away from end: start 9007199254740993, end 9007199254740992");
  EXPECT_THAT(error_of<ShapeError>([] { arange(0, -0.5, 1, i64); }), HasSubstr("leads away"));
  EXPECT_THAT(error_of<ShapeError>([] { arange(std::numeric_limits<Index>::min(), std::numeric_limits<Index>::max(), 1, i64); }),
              HasSubstr("too many elements"));
  EXPECT_THAT(error_of<DTypeError>([] { arange(0, 1, std::uint64_t{1} << 63, i64); }), HasSubstr("out of the range of an i64 element"));
  EXPECT_THAT(error_of<DTypeError>([] { arange(0, 1, 0.5, i64); }), HasSubstr("arange: an i64 element is a whole number: 0.5"));
  EXPECT_THAT(error_of<DTypeError>([] { arange(0, 2, 1, boolean); }), HasSubstr("arange: "));
}

TEST(Factory, FromVectorTakesItsTypeFromTheElements) {
  EXPECT_EQ(from_vector(std::vector<float>{1, 2, 3, 4}, {2, 2}).dtype(), f32);
  EXPECT_EQ(from_vector(std::vector<double>{1}, {}).dtype(), f64);
  EXPECT_THAT(from_vector(std::vector<Index>{1, 2, 3}, {3, 1}).to_vector<Index>(), ElementsAre(1, 2, 3));
  const Tensor flags = from_vector(std::vector<bool>{true, false, true}, {3});
  EXPECT_EQ(flags.dtype(), boolean);
  EXPECT_THAT(flags.to_vector<bool>(), ElementsAre(true, false, true));
  EXPECT_EQ(from_vector(std::vector<float>{}, {0, 4}).shape(), Dims({0, 4}));
  EXPECT_EQ(error_of<ShapeError>([] { from_vector(std::vector<float>{1, 2, 3}, {2, 2}); }), "from_vector: 3 values for 4 elements of shape (2, 2)");
  EXPECT_THAT(error_of<ShapeError>([] { from_vector(std::vector<float>{1}, {-1}); }), HasSubstr("from_vector: a size is negative"));
}

}  // namespace
}  // namespace heed
