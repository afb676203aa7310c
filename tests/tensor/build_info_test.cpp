#include <gtest/gtest.h>
#include <heed/heed.h>

#include <algorithm>

namespace heed {
namespace {

/// Version, compiler, build type, SIMD target, oneDNN, OpenMP, threads: none is empty or unknown.
TEST(BuildInfo, TellsWhatRuns) {
  const std::string info = build_info();
  EXPECT_EQ(info.rfind("heed " + version() + ", ", 0), 0u) << info;
  EXPECT_EQ(std::count(info.begin(), info.end(), ','), 6) << info;
  EXPECT_EQ(info.find(", ,"), std::string::npos) << info;
  EXPECT_EQ(info.find("nknown"), std::string::npos) << info;
}

}  // namespace
}  // namespace heed
