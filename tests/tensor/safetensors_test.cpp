#include <fmt/format.h>
#include <gmock/gmock.h>
#include <heed/tensor/factory.h>
#include <heed/tensor/io/elements.h>
#include <heed/tensor/io/file.h>
#include <heed/tensor/io/safetensors.h>
#include <heed/tensor/random.h>
#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <limits>

#include "file_helpers.h"

namespace heed {
namespace {

using detail::make_view;
using detail::read_safetensors;
using detail::read_safetensors_metadata;
using detail::write_safetensors;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;
using namespace tests;

using Tensors = std::map<std::string, Tensor>;
using Strings = std::map<std::string, std::string>;

std::string with_length(std::uint64_t length, const std::string& rest) { return bytes_of<std::uint64_t>({length}) + rest; }
std::string file(const std::string& header, const std::string& data) { return with_length(header.size(), header + data); }
Tensors loaded(const std::string& bytes) { return read_safetensors(as_file(bytes)); }
std::string error(const std::string& bytes) {
  return error_of<IoError>([&] { loaded(bytes); });
}
std::vector<double> values(const Tensors& tensors, const std::string& name) { return tensors.at(name).to_vector<double>(); }

const std::string header_a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
const std::string data_a = bytes_of<float>({1, 2});

/// A file with one entry in the header.
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets, const std::string& data) {
  return file(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data);
}

// ST-D1
TEST(Safetensors, LengthOfTheHeader) {
  ASSERT_EQ(header_a.size(), 54u);
  const Tensors tensors = loaded(with_length(54, header_a + data_a));
  EXPECT_EQ(tensors.size(), 1u);
  EXPECT_THAT(values(tensors, "a"), ElementsAre(1, 2));
  for (std::uint64_t length = 55; length <= 62; ++length) EXPECT_NE(error(with_length(length, header_a + data_a)), "") << length;
  EXPECT_EQ(error(with_length(1000000, header_a + data_a)), "load_safetensors: memory: a header of 1000000 bytes does not fit into a file of 70");
  for (std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{7}, ~std::uint64_t{0}, std::uint64_t{100'000'001}})
    EXPECT_THAT(error(with_length(length, header_a + data_a)), HasSubstr("at most 100000000 are allowed"));
  EXPECT_THAT(error(with_length(100'000'000, header_a + data_a)), HasSubstr("does not fit into a file of 70"));
  EXPECT_THAT(error(with_length(0, header_a + data_a)), HasSubstr("does not begin with a brace"));
  EXPECT_THAT(error(with_length(0, "")), HasSubstr("does not begin with a brace"));
  EXPECT_THAT(error(""), HasSubstr("it has 0"));
  EXPECT_THAT(error("1234567"), HasSubstr("it has 7"));
}

// ST-D2
TEST(Safetensors, RangesMustTileTheData) {
  EXPECT_EQ(error(entry("F32", "[300,7]", "[0,8]", data_a)),
            "load_safetensors: memory: tensor \"a\": F32 of shape (300, 7) takes 8400 bytes: data_offsets [0, 8] have 8");
  EXPECT_THAT(error(entry("F32", "[1]", "[0,8]", data_a)), HasSubstr("takes 4 bytes"));
  const std::string hole = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  EXPECT_THAT(error(file(hole, std::string(12, '\0'))), HasSubstr("tensor \"b\": a hole before its data: they begin at 8, expected at 4"));
  EXPECT_THAT(error(entry("F32", "[1]", "[4,8]", data_a)), HasSubstr("a hole before its data: they begin at 4, expected at 0"));
  EXPECT_THAT(error(file(header_a, data_a + "x")), HasSubstr("bytes are left over: the tensors end at 8, the data at 9"));
  EXPECT_THAT(error(file(header_a, data_a.substr(1))), HasSubstr("data end at 8: the file holds 7"));
  EXPECT_THAT(error(entry("F32", "[2]", "[8,0]", data_a)), HasSubstr("data_offsets go backwards: [8, 0]"));
  EXPECT_THAT(error(entry("F32", "[2]", "[0,8,8]", data_a)), HasSubstr("more than 2 numbers in data_offsets"));
  EXPECT_THAT(error(entry("F32", "[2]", "[0]", data_a)), HasSubstr("are not 2 numbers"));
  EXPECT_THAT(error(entry("F32", "[0]", "[4,0]", data_a)), HasSubstr("data_offsets go backwards"));
  const std::string overlap = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  EXPECT_THAT(error(file(overlap, data_a)), HasSubstr("tensor \"b\": an overlap before its data"));
  const std::string inside = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})";
  EXPECT_THAT(error(file(inside, data_a)), HasSubstr("overlap"));
}

TEST(Safetensors, NumbersThatWrap) {
  EXPECT_THAT(error(entry("F32", "[4611686018427387904,4]", "[0,0]", "")), HasSubstr("more elements than can be addressed"));
  EXPECT_THAT(error(entry("F32", "[8589934592,2147483648]", "[0,0]", "")), HasSubstr("more elements than can be addressed"));
  EXPECT_THAT(error(entry("F32", "[0,8589934592,2147483648]", "[0,0]", "")), HasSubstr("more elements than can be addressed"));
  EXPECT_THAT(error(entry("U8", "[18446744073709551615]", "[0,18446744073709551615]", "")), HasSubstr("data end at 18446744073709551615"));
  EXPECT_THAT(error(entry("F32", "[18446744073709551616]", "[0,8]", data_a)), HasSubstr("not whole or too large"));
  const std::string wide =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,18446744073709551615]}})";
  EXPECT_THAT(error(file(wide, "x")), HasSubstr("tensor \"b\": data end at 18446744073709551615"));
}

// ST-D3
TEST(Safetensors, DuplicateKeys) {
  const auto item = [](const char* name, const char* shape, const char* offsets) {
    return fmt::format(R"("{}":{{"dtype":"F32","shape":{},"data_offsets":{}}})", name, shape, offsets);
  };
  const std::string twice = "{" + item("a", "[1]", "[0,4]") + "," + item("a", "[1]", "[4,8]") + "}";
  EXPECT_EQ(error(file(twice, data_a)), "load_safetensors: memory: bad header: duplicate key \"a\"");
  EXPECT_THAT(error(file("{" + item("a", "[2]", "[0,8]") + "," + item("a", "[2]", "[0,8]") + "}", data_a)), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(error(file("{" + item("a", "[2]", "[0,8]") + "," + item("\\u0061", "[2]", "[0,8]") + "}", data_a)), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(error(file(R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", data_a)),
              HasSubstr("duplicate key \"shape\" in tensor \"a\""));
  EXPECT_THAT(error(file(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data_a)), HasSubstr("duplicate key \"dtype\""));
  EXPECT_THAT(error(file(R"({"a":{"dtype":"F32","data_offsets":[0,8],"shape":[2],"data_offsets":[0,8]}})", data_a)),
              HasSubstr("duplicate key \"data_offsets\""));
  EXPECT_THAT(error(file(R"({"__metadata__":{"k":"1","k":"2"}})", "")), HasSubstr("duplicate key \"k\" in __metadata__"));
  EXPECT_THAT(error(file(R"({"__metadata__":{},"__metadata__":{}})", "")), HasSubstr("duplicate key \"__metadata__\""));

  const Tensors tensors = loaded(file("{" + item("b", "[1]", "[8,12]") + "," + item("a", "[2]", "[0,8]") + "}", bytes_of<float>({1, 2, 3})));
  EXPECT_THAT(values(tensors, "a"), ElementsAre(1, 2));
  EXPECT_THAT(values(tensors, "b"), ElementsAre(3));
}

// ST-D4
TEST(Safetensors, EmptyScalarUnalignedAndPadded) {
  const Tensors empties =
      loaded(file(R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("z":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]}})",
                  bytes_of<float>({7})));
  EXPECT_EQ(empties.at("e").shape(), Dims({0, 3}));
  EXPECT_EQ(empties.at("z").shape(), Dims({3, 0}));
  EXPECT_THAT(values(empties, "a"), ElementsAre(7));
  const Tensors scalar = loaded(entry("F64", "[]", "[0,8]", bytes_of<double>({2.5})));
  EXPECT_EQ(scalar.at("a").dim(), 0);
  EXPECT_EQ(scalar.at("a").item<double>(), 2.5);
  const std::string empty_metadata = file(R"({"__metadata__":{},)" + header_a.substr(1), data_a);
  EXPECT_THAT(values(loaded(empty_metadata), "a"), ElementsAre(1, 2));
  EXPECT_TRUE(read_safetensors_metadata(as_file(empty_metadata)).empty());
  EXPECT_THAT(values(loaded(file(header_a + " ", data_a)), "a"), ElementsAre(1, 2));
  const Tensors unaligned =
      loaded(file(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})", "\x05" + data_a));
  EXPECT_THAT(values(unaligned, "a"), ElementsAre(1, 2));
  EXPECT_THAT(values(unaligned, "b"), ElementsAre(5));
  EXPECT_TRUE(loaded(file("{}", "")).empty());
  EXPECT_THAT(error(file("{}", "x")), HasSubstr("bytes are left over"));
}

TEST(Safetensors, HeadersThatAreRefused) {
  const std::pair<const char*, const char*> broken[] = {
      {"[]", "does not begin with a brace"},
      {" {}", "does not begin with a brace"},
      {"{}\n", "does not end with a brace"},
      {"{}x}", "not JSON"},
      {"{} {}", "not JSON"},
      {"{", "does not end with a brace"},
      {"{{}}", "not JSON"},
      {"{'a':{}}", "not JSON"},
      {"{\"a\":{},}", "dtype, shape or data_offsets is missing in tensor \"a\""},
      {"{\"\xff\":{}}", "not JSON"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],}})", "not JSON"},
      {R"({"a":[{}]})", "an array as the value of \"a\""},
      {R"({"a":null,"b":{}})", "null as the value of \"a\""},
      {R"({"a":1,"b":{}})", "a number as the value of \"a\""},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "is missing in tensor \"a\""},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", "unknown key \"more\" in tensor \"a\""},
      {R"({"a":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})", "a number in \"dtype\" of tensor \"a\""},
      {R"({"a":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", "an array in \"dtype\""},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "a number in \"shape\""},
      {R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,8]}})", "an object in \"shape\""},
      {R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", "a string in \"shape\""},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "an array in \"shape\""},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "a negative number in \"shape\""},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "not whole"},
      {R"({"a":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}})", "not whole"},
      {R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,8]}})", "a boolean in \"shape\""},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", "more than 8 sizes in shape"},
      {R"({"__metadata__":null,"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "null as the value of \"__metadata__\""},
      {R"({"__metadata__":{"k":null}})", "null in __metadata__, which maps strings to strings"},
      {R"({"__metadata__":{"k":1}})", "a number in __metadata__"},
      {R"({"__metadata__":{"k":{}}})", "an object in __metadata__"},
      {R"({"__metadata__":{"k":["v"]}})", "an array in __metadata__"},
  };
  for (const auto& [header, rule] : broken) EXPECT_THAT(error(file(header, data_a)), HasSubstr(rule)) << header;
  // A zero byte ends what the JSON parser reads, and would hide the rest.
  EXPECT_THAT(error(file(header_a + std::string("\0{}", 3), data_a)), HasSubstr("a zero byte"));
}

TEST(Safetensors, DeepNestingIsRefusedAtItsFirstLevel) {
  const std::size_t depth = 1000000;
  EXPECT_THAT(error(file("{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}", "")), HasSubstr("an array as the value"));
  std::string objects;
  for (std::size_t i = 0; i < depth; ++i) objects += "{\"a\":";
  EXPECT_THAT(error(file(objects + std::string(depth, '}'), "")), HasSubstr("unknown key \"a\" in tensor \"a\""));
}

TEST(Safetensors, OtherTypesAreNamedWithTheirKey) {
  const std::string bytes = entry("F8_E4M3", "[8]", "[0,8]", data_a);
  EXPECT_EQ(error(bytes),
            "load_safetensors: memory: tensor \"a\": dtype \"F8_E4M3\" is not read: F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL are");
  EXPECT_TRUE(read_safetensors_metadata(as_file(bytes)).empty());
  for (const char* dtype : {"U16", "U32", "U64", "C64", "f32", ""})
    EXPECT_THAT(error(entry(dtype, "[1]", "[0,8]", data_a)), HasSubstr("is not read"));
}

TEST(Safetensors, NarrowTypesAreWidened) {
  const auto read = [](const char* dtype, const std::string& data, std::size_t n) {
    return loaded(entry(dtype, fmt::format("[{}]", n), fmt::format("[0,{}]", data.size()), data)).at("a");
  };
  EXPECT_EQ(read("I32", bytes_of<std::int32_t>({-1, 2147483647}), 2).dtype(), i64);
  EXPECT_THAT(read("I32", bytes_of<std::int32_t>({-1, 2147483647}), 2).to_vector<Index>(), ElementsAre(-1, 2147483647));
  EXPECT_THAT(read("I16", bytes_of<std::int16_t>({-1, 32767}), 2).to_vector<Index>(), ElementsAre(-1, 32767));
  EXPECT_THAT(read("I8", "\xff\x7f", 2).to_vector<Index>(), ElementsAre(-1, 127));
  EXPECT_THAT(read("U8", "\xff\x7f", 2).to_vector<Index>(), ElementsAre(255, 127));
  EXPECT_THAT(read("BOOL", std::string("\0\1", 2), 2).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_THAT(error(entry("BOOL", "[2]", "[0,2]", "\x01\x40")), HasSubstr("tensor \"a\": a boolean is neither 0 nor 1: element 1 is 64"));
  // More elements than are converted at a time.
  std::string many;
  for (std::int16_t i = 0; i < 10000; ++i) many += bytes_of<std::int16_t>({i});
  EXPECT_EQ(read("I16", many, 10000).to_vector<Index>(), arange(0, 10000, 1, i64).to_vector<Index>());
}

TEST(Safetensors, HalvesAreWidenedExactly) {
  std::string all;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) all += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(bits)});
  const auto f16 = loaded(entry("F16", "[65536]", "[0,131072]", all)).at("a"), bf16 = loaded(entry("BF16", "[65536]", "[0,131072]", all)).at("a");
  ASSERT_EQ(f16.dtype(), f32);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float half = f16.data<float>()[bits], brain = bf16.data<float>()[bits];
    const bool is_negative = bits >> 15 != 0;
    const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
    ASSERT_EQ(std::signbit(half), is_negative) << bits;
    if (exponent < 31) {
      const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(half, is_negative ? -magnitude : magnitude) << bits;
    } else if (fraction == 0) {
      ASSERT_TRUE(std::isinf(half)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(half)) << bits;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(half) & 0x7fffff, static_cast<std::uint32_t>(fraction) << 13);
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(brain), bits << 16);
  }
}

TEST(Safetensors, WriterSortsPadsAndListsItsMetadataFirst) {
  const Tensors tensors{{"b", tensor({true}, boolean)}, {"a", tensor({1, 2})}, {"d", tensor({{3}}, f64)}, {"c", tensor({4}, i64)}, {"e", tensor(5)}};
  const std::string bytes = as_string(write_safetensors(tensors, {{"k\"1", "v\n"}, {"é", ""}}));
  const std::string header = R"({"__metadata__":{"k\"1":"v\n","é":""},"c":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                             R"("d":{"dtype":"F64","shape":[1,1],"data_offsets":[8,16]},"a":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},)"
                             R"("e":{"dtype":"F32","shape":[],"data_offsets":[24,28]},"b":{"dtype":"BOOL","shape":[1],"data_offsets":[28,29]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes, file(padded, bytes_of<Index>({4}) + bytes_of<double>({3}) + bytes_of<float>({1, 2, 5}) + "\x01"));
  EXPECT_THAT(read_safetensors_metadata(as_file(bytes)), UnorderedElementsAre(Pair("k\"1", "v\n"), Pair("é", "")));
  EXPECT_EQ(as_string(write_safetensors({})), file("{}      ", ""));
}

TEST(Safetensors, RoundTripsOfEveryTypeAndOfViews) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const Tensor x = from_vector(std::vector<float>{0, -0.0f, 1e-45f, infinity, -infinity, nan}, {2, 3});
  const Tensors tensors{{"x", x},
                        {"transposed", make_view(x, {{3, 2}, {1, 3}, 0})},
                        {"every second", make_view(x, {{2}, {2}, 1})},
                        {"expanded", make_view(x, {{4, 3}, {0, 1}, 0})},
                        {"wide", tensor({{0.1, 5e-324}}, f64)},
                        {"whole", tensor({std::numeric_limits<Index>::min(), std::numeric_limits<Index>::max()}, i64)},
                        {"flags", tensor({{true}, {false}}, boolean)},
                        {"empty", zeros({0, 3}, f64)},
                        {"", tensor(1)}};
  const std::vector<std::byte> bytes = write_safetensors(tensors);
  const Tensors back = read_safetensors(bytes);
  ASSERT_EQ(back.size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    EXPECT_EQ(back.at(name).dtype(), t.dtype()) << name;
    EXPECT_EQ(back.at(name).shape(), t.shape()) << name;
    EXPECT_TRUE(back.at(name).is_contiguous()) << name;
  }
  const auto bits = [](const Tensor& t) {
    std::vector<std::uint32_t> out;
    for (float value : t.to_vector<float>()) out.push_back(std::bit_cast<std::uint32_t>(value));
    return out;
  };
  for (const char* name : {"x", "transposed", "every second", "expanded"}) EXPECT_EQ(bits(back.at(name)), bits(tensors.at(name))) << name;
  EXPECT_EQ(values(back, "wide"), values(tensors, "wide"));
  EXPECT_EQ(back.at("whole").to_vector<Index>(), tensors.at("whole").to_vector<Index>());
  EXPECT_EQ(values(back, "flags"), values(tensors, "flags"));
  EXPECT_EQ(write_safetensors(back), bytes);
}

TEST(Safetensors, TiedTensorsAreStoredOnce) {
  const Tensor w = tensor({{1, 2}, {3, 4}});
  const Tensors tensors{{"wte", w},
                        {"lm_head", w},
                        {"same view", make_view(w, {{2, 2}, {2, 1}, 0})},
                        {"transposed", make_view(w, {{2, 2}, {1, 2}, 0})},
                        {"row", make_view(w, {{2}, {1}, 2})},
                        {"twin", tensor({{1, 2}, {3, 4}})}};
  const std::vector<std::byte> bytes = write_safetensors(tensors, {{"step", "3"}, {"heed.tied:old", "gone"}});
  EXPECT_THAT(read_safetensors_metadata(bytes),
              UnorderedElementsAre(Pair("step", "3"), Pair("heed.tied:wte", "lm_head"), Pair("heed.tied:same view", "lm_head")));
  const Tensors back = read_safetensors(bytes);
  EXPECT_EQ(back.size(), 6u);
  EXPECT_EQ(back.at("wte").id(), back.at("lm_head").id());
  EXPECT_EQ(back.at("same view").id(), back.at("lm_head").id());
  EXPECT_NE(back.at("twin").id(), back.at("lm_head").id());
  EXPECT_THAT(values(back, "wte"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values(back, "transposed"), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(values(back, "row"), ElementsAre(3, 4));
  // What was loaded, with its metadata, is saved as it was.
  EXPECT_EQ(write_safetensors(back, read_safetensors_metadata(bytes)), bytes);
}

TEST(Safetensors, TiesMustHold) {
  const auto tied = [](const std::string& other, const std::string& first) {
    return file(R"({"__metadata__":{"heed.tied:)" + other + R"(":")" + first + R"("},)" + header_a.substr(1), data_a);
  };
  EXPECT_THAT(values(loaded(tied("b", "a")), "b"), ElementsAre(1, 2));
  EXPECT_THAT(error(tied("b", "c")), HasSubstr("tensor \"b\" is tied to \"c\", which is not in the file"));
  EXPECT_THAT(error(tied("a", "a")), HasSubstr("tensor \"a\" is stored, and tied to \"a\" as well"));
  EXPECT_THAT(error(tied("b", "b")), HasSubstr("which is not in the file"));
}

TEST(Safetensors, WriterRefusesWhatTheFormatCannotHold) {
  const auto write_error = [](const Tensors& tensors, const Strings& metadata = {}) {
    return error_of<IoError>([&] { write_safetensors(tensors, metadata); });
  };
  EXPECT_EQ(write_error({{"a", Tensor()}}), "save_safetensors: tensor \"a\" is undefined");
  EXPECT_THAT(write_error({{"__metadata__", ones({1})}}), HasSubstr("a tensor cannot be named __metadata__"));
  EXPECT_THAT(write_error({{"\xff", ones({1})}}), HasSubstr("save_safetensors: not UTF-8"));
  EXPECT_THAT(write_error({}, {{"k", "\xc3"}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(write_error({}, {{"k", std::string(100'000'000, 'x')}}), HasSubstr("at most 100000000 are allowed"));
}

TEST(Safetensors, EveryPrefixIsAnError) {
  const std::string bytes = file(header_a, data_a);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_NE(error(bytes.substr(0, n)), "") << n;
    EXPECT_THROW(read_safetensors_metadata(as_file(bytes.substr(0, n))), IoError) << n;
  }
}

TEST(Safetensors, EveryChangedByteLoadsOrIsAnError) {
  const std::string bytes = file(R"({"__metadata__":{"heed.tied:b":"a"},)" + header_a.substr(1) + "  ", data_a);
  int refused = 0;
  for (std::size_t at = 0; at < bytes.size() - data_a.size(); ++at)
    for (int change = 1; change < 256; ++change) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      try {
        EXPECT_LE(read_safetensors(as_file(changed)).size(), 2u);
      } catch (const Error&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, 15000);
}

TEST(SafetensorsFile, ReadsAGoldenFile) {
  const std::filesystem::path path = std::filesystem::path(HEED_SOURCE_DIR) / "tests/golden/softmax_dim0.safetensors";
  const Tensors tensors = load_safetensors(path);
  EXPECT_THAT(safetensors_metadata(path), UnorderedElementsAre(Pair("dim", "0")));
  ASSERT_EQ(tensors.size(), 4u);
  for (const char* name : {"x", "out", "g", "dx"}) {
    EXPECT_EQ(tensors.at(name).shape(), Dims({3, 5, 4}));
    EXPECT_EQ(tensors.at(name).dtype(), f64);
  }
  // out = exp(x) / sum over dim 0 of exp(x)
  const auto x = values(tensors, "x"), out = values(tensors, "out");
  for (std::size_t i = 0; i < 20; ++i) {
    const double sum = std::exp(x[i]) + std::exp(x[i + 20]) + std::exp(x[i + 40]);
    for (std::size_t k = i; k < 60; k += 20) EXPECT_NEAR(out[k], std::exp(x[k]) / sum, 1e-15);
  }
}

TEST(SafetensorsFile, SavesAndLoads) {
  TemporaryFolder folder;
  const Tensors tensors{{"w", randn({7, 5})}, {"step", tensor(3, i64)}};
  save_safetensors(folder / "m.safetensors", tensors, {{"format", "pt"}});
  save_safetensors((folder / "m.safetensors").string(), tensors, {{"format", "heed"}});
  const Tensors back = load_safetensors((folder / "m.safetensors").string());
  EXPECT_EQ(values(back, "w"), values(tensors, "w"));
  EXPECT_EQ(back.at("step").item<Index>(), 3);
  EXPECT_THAT(safetensors_metadata(folder / "m.safetensors"), ElementsAre(Pair("format", "heed")));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(SafetensorsFile, ErrorsNameTheFile) {
  TemporaryFolder folder;
  const std::string absent = (folder / "absent").string();
  EXPECT_EQ(error_of<IoError>([&] { load_safetensors(absent); }), "load_safetensors: " + absent + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of<IoError>([&] { safetensors_metadata(absent); }), "safetensors_metadata: " + absent + ": cannot open: No such file or directory");
  EXPECT_THAT(error_of<IoError>([&] { load_safetensors(folder.path()); }), HasSubstr("it is a folder"));
  EXPECT_THAT(error_of<IoError>([&] { save_safetensors(folder.path(), {}); }), HasSubstr("save_safetensors: "));
  EXPECT_THAT(error_of<IoError>([&] { save_safetensors("/dev/full", {{"a", ones({1})}}); }), HasSubstr("not a regular file"));
  // Refused before a file is made.
  EXPECT_NE(error_of<IoError>([&] { save_safetensors(absent, {{"a", Tensor()}}); }), "");
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(SafetensorsFile, AFailedSaveLeavesTheOldFile) {
  TemporaryFolder folder;
  const auto path = folder / "m.safetensors";
  save_safetensors(path, {{"a", tensor({1, 2})}});
  const std::string old = read_file(path);
  ::rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  const ::rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of<IoError>([&] { save_safetensors(path, {{"a", ones({100000})}}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot write: File too large"));
  EXPECT_EQ(folder.entries(), 1u);
  EXPECT_EQ(read_file(path), old);
}

TEST(SafetensorsFile, AFileThatShrinksIsAnError) {
  TemporaryFolder folder;
  write_file(folder / "x", std::string(1000, 'x'));
  detail::FileSource source("load_npy", folder / "x");
  std::vector<std::byte> out(1000);
  std::filesystem::resize_file(folder / "x", 400);
  EXPECT_THAT(error_of<IoError>([&] { source.read(0, out); }), HasSubstr("the file became shorter while it was read: 400 of 1000 bytes are left"));
}

}  // namespace
}  // namespace heed
