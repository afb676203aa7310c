#include <gtest/gtest.h>
#include <heed/tensor/raise.h>

#include "file_helpers.h"

// What the texts of errors are made of.

namespace heed {
namespace {

using detail::called_at;
using detail::raise;
using tests::error_of;

TEST(Raise, AnOpSaysItsNameAndWhereItWasCalled) {
  const OpName op{"matmul", {"src/model.cpp", 12}};
  EXPECT_EQ(error_of<ShapeError>([&] { raise<ShapeError>(op, "inner sizes differ: {} and {}", 2, 3); }),
            "matmul: inner sizes differ: 2 and 3 (called at src/model.cpp:12)");
  EXPECT_EQ(error_of<Error>([&] { raise<Error>(op, "no values"); }), "matmul: no values (called at src/model.cpp:12)");
}

TEST(Raise, ANameAloneHasNoPlace) {
  const OpName alone = "arange";
  EXPECT_EQ(alone.caller.line, 0);
  EXPECT_EQ(error_of<Error>([&] { raise<Error>(alone, "step is {}", 0); }), "arange: step is 0");
  EXPECT_EQ(error_of<Error>([] { (void)detail::wrap_dim("sum", 2, {3}); }), "sum: dim 2 is out of range [-1, 0] of shape (3,)");
}

TEST(Raise, NoErrorNamesALineOfTheLibrary) {
  for (const char* file : {"/usr/include/heed/nn/sequential.h", "build/include/heed/autograd/op.h"}) EXPECT_EQ(called_at({file, 5}), "") << file;
  // As a build inside of the tree names it, or any other.
  EXPECT_TRUE(called_at({"heed/nn/gpt.cpp", 5}).empty() || called_at({HEED_SOURCE_DIR "/nn/gpt.cpp", 5}).empty());
  for (const char* file : {HEED_SOURCE_DIR "/examples/lesson.cpp", "../tests/nn/x.cpp", "../nn/model.cpp", "nn/model.cpp", "src/heed/model.h"})
    EXPECT_EQ(called_at({file, 5}), std::string(" (called at ") + file + ":5)") << file;
}

}  // namespace
}  // namespace heed
