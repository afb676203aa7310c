#include <heed/tensor/kernels/dropout.h>
#include <heed/tensor/random.h>

#include "support.h"

namespace heed::kernels {
namespace {

using test::Block;

template <class T>
class Dropout : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Dropout, Floats);

TYPED_TEST(Dropout, FollowsTheNumbersOfTheGenerator) {
  using T = TypeParam;
  test::for_each_target([] {
    for (const Index n : {0, 1, 2, 7, 16, 33, 100})
      for (const std::uint64_t position : {0ULL, 1ULL, 12345ULL, (1ULL << 34) - 3})
        for (const double p : {0.0, 0.25, 0.5, 1.0}) {
          Block<T> out(n);
          dropout_scale<T>(out.data(), 42, position, n, p, T{3});
          for (Index i = 0; i < n; ++i)
            ASSERT_EQ(out.data()[i], detail::uniform_at(42, position + static_cast<std::uint64_t>(i)) < p ? T{0} : T{3})
                << n << " numbers from " << position << ", p " << p << ", number " << i;
        }
  });
}

TYPED_TEST(Dropout, SameBitsForAllThreadCounts) {
  using T = TypeParam;
  test::expect_same_bits_for_all_thread_counts([] {
    Block<T> out(100001);
    dropout_scale<T>(out.data(), 7, 5, 100001, 0.3, T{1});
    return out;
  });
}

}  // namespace
}  // namespace heed::kernels
