// Gradient checks as assertions of GoogleTest.
#include <heed/gtest.h>
#include <heed/heed.h>

#include <gtest/gtest-spi.h>

using namespace heed;

static Tensor twice_softmax(const std::vector<Tensor>& in) { return 2 * softmax(in[0], -1); }
static Tensor constant(const std::vector<Tensor>& in) { return in[0].detach(); }

TEST(Gradcheck, PassesARightGradient) {
  manual_seed(1);
  EXPECT_GRADCHECK(twice_softmax, std::vector<Tensor>{randn({3, 4}, f64)});
  ASSERT_GRADCHECK(twice_softmax, std::vector<Tensor>{randn({2, 2}, f32)}, {.allow_f32 = true});
}

TEST(Gradcheck, FailsAWrongOneAndSaysWhere) {
  manual_seed(1);
  static const std::vector<Tensor> inputs = {randn({3}, f64)};
  EXPECT_NONFATAL_FAILURE(EXPECT_GRADCHECK(constant, inputs), "wrong");
  EXPECT_FATAL_FAILURE(ASSERT_GRADCHECK(constant, inputs), "wrong");
}
