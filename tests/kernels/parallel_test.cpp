#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heed/tensor/error.h>
#include <heed/tensor/kernels/parallel.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

namespace heed {
namespace {

using kernels::parallel_for;
using kernels::parallel_ranges;
using kernels::threads_for;

class Parallel : public testing::Test {
 protected:
  ~Parallel() override { set_num_threads(before_); }
  /// What was set, or 1 in a build that has no threads.
  static int allowed(int threads) {
    set_num_threads(threads);
    return detail::num_threads();
  }

 private:
  int before_ = detail::num_threads();
};

std::vector<std::pair<Index, Index>> ranges_of(Index n, int threads) {
  std::vector<std::pair<Index, Index>> ranges(64);
  std::atomic<std::size_t> count{0};
  const auto note = [&](Index begin, Index end) { ranges[count++] = {begin, end}; };
  parallel_ranges(
      n, threads, [](void* f, Index begin, Index end) { (*static_cast<decltype(note)*>(f))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&note)));
  ranges.resize(count);
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST_F(Parallel, RefusesLessThanOneThread) {
  const int before = detail::num_threads();
  EXPECT_THROW(set_num_threads(0), Error);
  EXPECT_THROW(set_num_threads(-3), Error);
  EXPECT_EQ(detail::num_threads(), before);
}

TEST_F(Parallel, RangesCoverEverythingOnce) {
  for (const int threads : {1, 2, 3, 4, 7}) {
    for (const Index n : {0, 1, 2, 3, 5, 6, 7, 8, 100}) {
      const auto ranges = ranges_of(n, threads);
      EXPECT_EQ(ranges.size(), static_cast<std::size_t>(std::min<Index>(n, threads)));
      Index at = 0, smallest = n, largest = 0;
      for (const auto& [begin, end] : ranges) {
        EXPECT_EQ(begin, at);
        at = end;
        smallest = std::min(smallest, end - begin);
        largest = std::max(largest, end - begin);
      }
      EXPECT_EQ(at, n);
      if (n > 0) {
        EXPECT_LE(largest - smallest, 1);
      }
    }
  }
}

TEST_F(Parallel, ThreadsFollowTheWork) {
  const int four = allowed(4);
  EXPECT_EQ(threads_for(0, 10), 1);
  EXPECT_EQ(threads_for(19, 10), 1);
  EXPECT_EQ(threads_for(20, 10), std::min(four, 2));
  EXPECT_EQ(threads_for(1000, 10), four);
  EXPECT_EQ(threads_for(1000, 0), four);
  allowed(1);
  EXPECT_EQ(threads_for(1000, 10), 1);
}

TEST_F(Parallel, ARegionInsideARegionHasOneThread) {
  allowed(4);
  std::atomic<int> inner{0};
  parallel_for(8, 1, [&](Index, Index) { inner = std::max(inner.load(), threads_for(1000, 1)); });
  EXPECT_EQ(inner, 1);
}

TEST_F(Parallel, SmallWorkStaysOnTheCallersThread) {
  allowed(4);
  const auto caller = std::this_thread::get_id();
  int calls = 0;
  parallel_for(15, 8, [&](Index begin, Index end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 15);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
  parallel_for(0, 8, [&](Index, Index) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST_F(Parallel, ThreadsOfAUserMayEachOpenRegions) {
  allowed(2);
  std::vector<std::thread> users;
  std::atomic<Index> sum{0};
  for (int i = 0; i < 4; ++i)
    users.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) parallel_for(100, 1, [&](Index begin, Index end) { sum += end - begin; });
    });
  for (std::thread& user : users) user.join();
  EXPECT_EQ(sum, 4 * 20 * 100);
}

// The parent's threads are not in the child, and OpenMP's runtime would wait for them for ever.
TEST_F(Parallel, AForkedChildRunsAlone) {
  allowed(2);
  Index done = 0;
  parallel_for(100, 1, [](Index, Index) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    parallel_for(100, 1, [&](Index begin, Index end) { done += end - begin; });
    _exit(done == 100 && threads_for(100, 1) == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST_F(Parallel, DeterministicModeIsRemembered) {
  EXPECT_FALSE(detail::is_deterministic());
  set_deterministic(true);
  EXPECT_TRUE(detail::is_deterministic());
  set_deterministic(false);
  EXPECT_FALSE(detail::is_deterministic());
}

}  // namespace
}  // namespace heed
