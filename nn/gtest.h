#pragma once

/// @file
/// Matchers for users of GoogleTest.

#include <gtest/gtest.h>

#include "autograd/gradcheck.h"

namespace heed::detail {

inline testing::AssertionResult passed(const GradcheckReport& report) {
  return (report.ok ? testing::AssertionSuccess() : testing::AssertionFailure()) << report.message;
}

}  // namespace heed::detail

/// EXPECT_GRADCHECK(fn, inputs[, options]): passes when `heed::gradcheck` does; its table is the failure's text.
#define EXPECT_GRADCHECK(...) EXPECT_TRUE(::heed::detail::passed(::heed::gradcheck(__VA_ARGS__)))
/// As EXPECT_GRADCHECK, and leaves the test where it fails.
#define ASSERT_GRADCHECK(...) ASSERT_TRUE(::heed::detail::passed(::heed::gradcheck(__VA_ARGS__)))
