#include <gmock/gmock.h>
#include <heed/tensor/factory.h>
#include <heed/tensor/io/npy.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "file_helpers.h"

namespace heed {
namespace {

using detail::make_view;
using detail::read_npy;
using detail::write_npy;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace tests;

/// A file of a version from the text of its header and its data.
std::string npy(const std::string& header, const std::string& data, int major = 1) {
  std::string file = std::string("\x93NUMPY") + static_cast<char>(major) + '\0';
  for (std::size_t i = 0; i < (major == 1 ? 2u : 4u); ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + data;
}
std::string dict(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}
std::string error(const std::string& file) {
  return error_of<IoError>([&] { read_npy(as_file(file)); });
}
Tensor loaded(const std::string& file) { return read_npy(as_file(file)); }

const std::string two = bytes_of<float>({1.5f, -2});

// NP-D1
TEST(Npy, ColumnsFirst) {
  const Tensor x = loaded(npy(dict("<f4", "True", "(2, 3)"), bytes_of<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(x.shape(), Dims({2, 3}));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
  const Tensor row = loaded(npy(dict("<f4", "True", "(1, 3)"), bytes_of<float>({1, 2, 3})));
  EXPECT_EQ(row.shape(), Dims({1, 3}));
  EXPECT_THAT(row.to_vector<float>(), ElementsAre(1, 2, 3));
  const Tensor cube = loaded(npy(dict("<i8", "True", "(2, 1, 3)"), bytes_of<Index>({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(cube.shape(), Dims({2, 1, 3}));
  EXPECT_THAT(cube.to_vector<Index>(), ElementsAre(1, 3, 5, 2, 4, 6));
  EXPECT_EQ(loaded(npy(dict("<f8", "True", "()"), bytes_of<double>({5.5}))).item<double>(), 5.5);
  EXPECT_EQ(loaded(npy(dict("<f8", "True", "(0, 3)"), "")).shape(), Dims({0, 3}));
}

TEST(Npy, ViewsAreSavedInLogicalOrder) {
  const Tensor x = tensor({{0, 1, 2}, {3, 4, 5}});
  const auto reload = [](const Tensor& t) { return read_npy(write_npy(t)); };
  const Tensor transposed = reload(make_view(x, {{3, 2}, {1, 3}, 0}));
  EXPECT_EQ(transposed.shape(), Dims({3, 2}));
  EXPECT_THAT(transposed.to_vector<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(reload(make_view(x, {{3}, {2}, 1})).to_vector<float>(), ElementsAre(1, 3, 5));
  const Tensor rows = reload(make_view(tensor({1, 2}), {{4, 2}, {0, 1}, 0}));
  EXPECT_EQ(rows.shape(), Dims({4, 2}));
  EXPECT_THAT(rows.to_vector<float>(), ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
}

// NP-D2
TEST(Npy, Versions) {
  for (int major : {1, 2, 3}) EXPECT_THAT(loaded(npy(dict("<f4", "False", "(2,)"), two, major)).to_vector<float>(), ElementsAre(1.5f, -2));
  EXPECT_EQ(error(npy(dict("<f4", "False", "(2,)"), two, 4)), "load_npy: memory: version 4.0 is not read: 1.0, 2.0 and 3.0 are");
  EXPECT_THAT(error(npy(dict("<f4", "False", "(2,)"), two, 0)), HasSubstr("version 0.0"));
  std::string minor = npy(dict("<f4", "False", "(2,)"), two);
  minor[7] = 1;
  EXPECT_THAT(error(minor), HasSubstr("version 1.1"));
}

TEST(Npy, LengthsBeyondTheFile) {
  EXPECT_EQ(error(std::string("\x93NUMPY\x02\x00\xF0\xFF\xFF\x7F", 12)),
            "load_npy: memory: a header of 2147483632 bytes does not fit into a file of 12");
  EXPECT_THAT(error(npy(dict("<f4", "False", "(8589934592, 2147483648)"), "1234")), HasSubstr("more elements than can be addressed"));
  EXPECT_THAT(error(npy(dict("<f4", "False", "(4611686018427387904,)"), "1234")), HasSubstr("more elements than can be addressed"));
  EXPECT_THAT(error(npy(dict("<f4", "False", "(1000000000000,)"), "1234")), HasSubstr("shape (1000000000000,) wants 4000000000000 bytes of data"));
  EXPECT_THAT(error(npy(dict("<f4", "False", "(99999999999999999999,)"), "1234")), HasSubstr("a size is too large"));
  // Empty, and yet its strides could not be computed.
  EXPECT_THAT(error(npy(dict("<f4", "False", "(0, 8589934592, 2147483648)"), "")), HasSubstr("more elements than can be addressed"));
}

// NP-D3
TEST(Npy, ShapesOfRankZeroAndOneAndEmpty) {
  const Tensor scalar = loaded(npy(dict("<f8", "False", "()"), bytes_of<double>({5.5})));
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(scalar.item<double>(), 5.5);
  EXPECT_EQ(loaded(npy(dict("<f4", "False", "(3,)"), bytes_of<float>({1, 2, 3}))).shape(), Dims({3}));
  EXPECT_EQ(loaded(npy(dict("<f4", "False", "(0, 3)"), "")).shape(), Dims({0, 3}));
  EXPECT_THAT(error(npy(dict("<f4", "False", "(3)"), bytes_of<float>({1, 2, 3}))), HasSubstr("a tuple of one has a comma"));
  for (const Dims& shape : {Dims(), Dims({3}), Dims({0, 3}), Dims({1, 1, 1, 1, 1, 1, 1, 1})}) {
    const Tensor x = ones(shape, f64), back = read_npy(write_npy(x));
    EXPECT_EQ(back.shape(), shape);
    EXPECT_EQ(back.to_vector<double>(), x.to_vector<double>());
  }
}

TEST(Npy, WritesVersionOneAlignedTo64) {
  const auto file = [](const Tensor& t) { return as_string(write_npy(t)); };
  std::string expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  expected = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + expected + std::string(117 - expected.size(), ' ') + '\n' + bytes_of<float>({1, 2, 3});
  EXPECT_EQ(file(tensor({1, 2, 3})), expected);
  EXPECT_THAT(file(tensor(1, f64)), HasSubstr("'<f8', 'fortran_order': False, 'shape': (), }"));
  EXPECT_THAT(file(zeros({2, 3}, i64)), HasSubstr("'<i8', 'fortran_order': False, 'shape': (2, 3), }"));
  EXPECT_THAT(file(zeros({0}, boolean)), HasSubstr("'|b1', 'fortran_order': False, 'shape': (0,), }"));
  const Index million = 1000000;
  for (const Dims& shape :
       {Dims({0}), Dims({0, million, million}), Dims({0, 1, million, 1, million, 1, 1}), Dims({0, 1, 1, 1, 1, million, million, 123})}) {
    const std::string header = file(zeros(shape));
    EXPECT_EQ(header.size() % 64, 0u);
    EXPECT_EQ(header.back(), '\n');
    EXPECT_EQ(loaded(header).shape(), shape);
  }
}

TEST(Npy, RoundTripsOfEveryType) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const Tensor& x :
       {from_vector(std::vector<float>{0, -0.0f, 1e-45f, inf, -inf, nan}, {2, 3}), tensor({{0.1}, {5e-324}}, f64),
        tensor({std::numeric_limits<Index>::min(), Index{-1}, std::numeric_limits<Index>::max()}, i64), tensor({{true, false, true}}, boolean)}) {
    const Tensor back = read_npy(write_npy(x));
    EXPECT_EQ(back.dtype(), x.dtype());
    EXPECT_EQ(back.shape(), x.shape());
    EXPECT_EQ(as_string(write_npy(back)), as_string(write_npy(x)));
  }
}

TEST(Npy, TypesThatAreReadAsOthers) {
  const auto read = [](const std::string& descr, const std::string& shape, const std::string& data) {
    return loaded(npy(dict(descr, "False", shape), data));
  };
  const Tensor i4 = read("<i4", "(2,)", bytes_of<std::int32_t>({-5, 2147483647}));
  EXPECT_EQ(i4.dtype(), i64);
  EXPECT_THAT(i4.to_vector<Index>(), ElementsAre(-5, 2147483647));
  EXPECT_THAT(read("|u1", "(2,)", "\xff\x01").to_vector<Index>(), ElementsAre(255, 1));
  EXPECT_THAT(read("|i1", "(2,)", "\xff\x01").to_vector<Index>(), ElementsAre(-1, 1));
  EXPECT_THAT(read("<i2", "(1,)", "\xfe\xff").to_vector<Index>(), ElementsAre(-2));
  EXPECT_THAT(read("<f2", "(2,)", std::string("\x00\x3c\x01\x00", 4)).to_vector<float>(), ElementsAre(1, 0x1p-24f));
  EXPECT_THAT(read("=f4", "(2,)", two).to_vector<float>(), ElementsAre(1.5f, -2));
}

TEST(Npy, TheOtherByteOrder) {
  const auto reversed = [](std::string bytes) { return std::string(bytes.rbegin(), bytes.rend()); };
  const auto read = [](const std::string& descr, const std::string& data) {
    return loaded(npy(dict(descr, "False", "(1,)"), data)).to_vector<double>();
  };
  EXPECT_THAT(read(">f4", reversed(bytes_of<float>({1.5f}))), ElementsAre(1.5));
  EXPECT_THAT(read(">f8", reversed(bytes_of<double>({0.1}))), ElementsAre(0.1));
  EXPECT_THAT(read(">i8", reversed(bytes_of<Index>({-3}))), ElementsAre(-3));
  EXPECT_THAT(read(">i4", reversed(bytes_of<std::int32_t>({-3}))), ElementsAre(-3));
  EXPECT_THAT(read(">i2", "\x01\x02"), ElementsAre(0x0102));
  EXPECT_THAT(read(">f2", std::string("\x3c\x00", 2)), ElementsAre(1));
  EXPECT_THAT(read(">b1", "\x01"), ElementsAre(1));
}

TEST(Npy, HeadersAsOthersWroteThem) {
  const auto read = [](const std::string& header) { return loaded(npy(header, two)).to_vector<float>(); };
  EXPECT_THAT(read("{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }\n"), ElementsAre(1.5f, -2));
  EXPECT_THAT(read("{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}"), ElementsAre(1.5f, -2));
  EXPECT_THAT(read("{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , ) , }      \n"), ElementsAre(1.5f, -2));
  EXPECT_THAT(loaded(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 2L)}\n", two)).shape().size(), 2u);
}

TEST(Npy, HeadersThatAreRefused) {
  const auto header_error = [](const std::string& header) { return error(npy(header, two)); };
  EXPECT_EQ(header_error(dict("|O", "False", "(2,)")), "load_npy: memory: arrays of Python objects are not read: dtype '|O'");
  EXPECT_THAT(header_error("{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (2,), }"),
              HasSubstr("structured dtypes are not read: [('a', '<f4'), ('b', '<i4')]"));
  EXPECT_THAT(header_error("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (1,), }"), HasSubstr("structured dtypes"));
  for (const char* descr : {"<c8", "<f16", "<U5", "<M8[ns]", "|V8", "f4", "|f4", "<u8", "", "<", "!f4"})
    EXPECT_THAT(header_error(dict(descr, "False", "(2,)")), HasSubstr("dtype '" + std::string(descr) + "' is not read"));

  const std::pair<const char*, const char*> broken[] = {
      {"", "'{' is expected"},
      {"[]", "'{' is expected"},
      {"{}", "is missing"},
      {"{'descr': '<f4', 'fortran_order': False, }", "is missing"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "a key is none of"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "the key 'descr' appears twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}", "the key 'shape' appears twice"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "neither True nor False"},
      {"{'descr': '<f4', 'fortran_order': False 'shape': (2,)}", "',' is expected"},
      {"{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}", "':' is expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "something follows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "',' is expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': [2]}", "'(' is expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "not negative"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", "',' is expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "not negative"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (02,)}", "begins with 0"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2", "',' is expected"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 2)}", "the rank is above 8"},
      {"{'descr': '<f4", "a string does not end"},
      {"{'descr': '<f\\x34', 'fortran_order': False, 'shape': (2,)}", "an escape"},
  };
  for (const auto& [header, rule] : broken) EXPECT_THAT(header_error(header), HasSubstr(rule)) << header;
}

TEST(Npy, DataOfAnotherLength) {
  EXPECT_EQ(error(npy(dict("<f4", "False", "(2,)"), two + "x")), "load_npy: memory: shape (2,) wants 8 bytes of data: the file has 9");
  EXPECT_THAT(error(npy(dict("<f4", "False", "(2,)"), two.substr(1))), HasSubstr("wants 8 bytes of data: the file has 7"));
  EXPECT_THAT(error(npy(dict("<f4", "False", "()"), "")), HasSubstr("shape () wants 4 bytes"));
  EXPECT_THAT(error(npy(dict("<f4", "False", "(0,)"), "x")), HasSubstr("shape (0,) wants 0 bytes"));
}

TEST(Npy, ABooleanIsZeroOrOne) {
  EXPECT_EQ(error(npy(dict("|b1", "False", "(3,)"), std::string("\0\1\2", 3))),
            "load_npy: memory: data: a boolean is neither 0 nor 1: element 2 is 2");
}

TEST(Npy, EveryPrefixIsAnError) {
  const std::string file = npy(dict("<f4", "False", "(2,)"), two);
  for (std::size_t n = 0; n < file.size(); ++n) EXPECT_NE(error(file.substr(0, n)), "") << n;
}

TEST(Npy, EveryChangedByteLoadsOrIsAnError) {
  const std::string file = npy(dict("<f4", "False", "(2,)"), two);
  int refused = 0;
  for (std::size_t at = 0; at < file.size() - two.size(); ++at)
    for (int change = 1; change < 256; ++change) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ change);
      try {
        EXPECT_LE(read_npy(as_file(changed)).numel(), 8);
      } catch (const Error&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, 15000);
}

TEST(NpyFile, SavesAndLoads) {
  TemporaryFolder folder;
  const Tensor x = arange(0, 12, 1, f64);
  save_npy(folder / "x.npy", x);
  EXPECT_EQ(load_npy(folder / "x.npy").to_vector<double>(), x.to_vector<double>());
  EXPECT_EQ(read_file(folder / "x.npy"), as_string(write_npy(x)));
  save_npy((folder / "x.npy").string(), ones({2}));
  EXPECT_EQ(load_npy((folder / "x.npy").string()).shape(), Dims({2}));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(NpyFile, ErrorsNameTheFile) {
  TemporaryFolder folder;
  const auto load_error = [](const std::filesystem::path& path) { return error_of<IoError>([&] { load_npy(path); }); };
  EXPECT_EQ(load_error(folder / "absent.npy"), "load_npy: " + (folder / "absent.npy").string() + ": cannot open: No such file or directory");
  EXPECT_EQ(load_error(folder.path()), "load_npy: " + folder.path().string() + ": not a regular file: it is a folder");
  EXPECT_THAT(load_error("/dev/zero"), HasSubstr("not a regular file"));
  EXPECT_THAT(load_error(""), HasSubstr("cannot open"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(load_error(folder / "pipe"), HasSubstr("not a regular file"));
  write_file(folder / "empty.npy", "");
  EXPECT_THAT(load_error(folder / "empty.npy"), HasSubstr("the file ends inside of its first 10 bytes: it has 0"));
}

TEST(NpyFile, RefusesToReplaceWhatIsNoFile) {
  TemporaryFolder folder;
  const auto save_error = [](const std::filesystem::path& path) { return error_of<IoError>([&] { save_npy(path, ones({2})); }); };
  EXPECT_EQ(save_error(folder.path()), "save_npy: " + folder.path().string() + ": not a regular file: it is a folder");
  EXPECT_THAT(save_error("/dev/full"), HasSubstr("save_npy: /dev/full: not a regular file"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_THAT(save_error(folder / "absent" / "x.npy"), HasSubstr("cannot make a temporary file in the same folder: No such file"));
  EXPECT_THAT(save_error(""), HasSubstr("not the name of a file"));
  EXPECT_THAT(save_error((folder / "new").string() + "/"), HasSubstr("not the name of a file"));
  EXPECT_EQ(error_of<IoError>([&] { save_npy(folder / "x.npy", Tensor()); }), "save_npy: the tensor is undefined");
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(NpyFile, AFailedSaveLeavesTheOldFile) {
  TemporaryFolder folder;
  save_npy(folder / "x.npy", tensor({1, 2}));
  // A full disk, in short: no file of this process may grow beyond 1000 bytes.
  ::rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  const ::rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of<IoError>([&] { save_npy(folder / "x.npy", ones({100000})); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "save_npy: " + (folder / "x.npy").string() + ": cannot write: File too large");
  EXPECT_EQ(folder.entries(), 1u);
  EXPECT_THAT(load_npy(folder / "x.npy").to_vector<float>(), ElementsAre(1, 2));
}

TEST(NpyFile, FollowsLinksAndKeepsPermissions) {
  TemporaryFolder folder;
  save_npy(folder / "x.npy", ones({1}));
  ASSERT_EQ(::chmod((folder / "x.npy").c_str(), 0640), 0);
  std::filesystem::create_symlink(folder / "x.npy", folder / "link.npy");
  save_npy(folder / "link.npy", ones({5}));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.npy"));
  EXPECT_EQ(load_npy(folder / "x.npy").numel(), 5);
  EXPECT_EQ(std::filesystem::status(folder / "x.npy").permissions(), static_cast<std::filesystem::perms>(0640));
}

TEST(NpyFile, WritesIntoTheCurrentFolder) {
  TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  save_npy("w.npy", ones({3}));
  EXPECT_EQ(load_npy("w.npy").numel(), 3);
  std::filesystem::current_path(before);
  EXPECT_EQ(folder.entries(), 1u);
}

}  // namespace
}  // namespace heed
