#include <algorithm>
#include <limits>

#include "support.h"

// Learning rates in closed form, groups by decay, and gradients summed over parts of a batch.

namespace heed {
namespace {

using test::message_of;
using test::near;
using test::values;

TEST(Schedule, WarmsUpAndFallsAsACosine) {
  const nn::WarmupCosine lr{.peak = 2, .warmup_steps = 3, .total_steps = 11, .floor = 0.5};
  EXPECT_DOUBLE_EQ(lr(0), 0.5);
  EXPECT_DOUBLE_EQ(lr(2), 1.5);
  EXPECT_DOUBLE_EQ(lr(3), 2);
  EXPECT_DOUBLE_EQ(lr(5), 0.5 + 1.5 * (1 + std::sqrt(0.5)) / 2) << "a quarter of the way";
  EXPECT_DOUBLE_EQ(lr(7), 1.25) << "half way";
  EXPECT_DOUBLE_EQ(lr(11), 0.5);
  EXPECT_DOUBLE_EQ(lr(1000000), 0.5);
}

TEST(Schedule, FallsAsALine) {
  const nn::WarmupLinear lr{.peak = 1, .warmup_steps = 0, .total_steps = 4, .floor = 0.2};
  EXPECT_DOUBLE_EQ(lr(0), 1);
  EXPECT_DOUBLE_EQ(lr(1), 0.8);
  EXPECT_DOUBLE_EQ(lr(3), 0.4);
  EXPECT_DOUBLE_EQ(lr(4), 0.2);
}

TEST(Schedule, FallsInSteps) {
  const nn::StepDecay lr{.peak = 8, .step_size = 10, .gamma = 0.5, .warmup_steps = 1};
  EXPECT_DOUBLE_EQ(lr(0), 4);
  EXPECT_DOUBLE_EQ(lr(1), 8);
  EXPECT_DOUBLE_EQ(lr(9), 8);
  EXPECT_DOUBLE_EQ(lr(10), 4);
  EXPECT_DOUBLE_EQ(lr(39), 1);
}

/// Also where the warm-up takes as long as the run, or longer: nothing of it is cut off.
TEST(Schedule, StepWarmupStepsHasThePeak) {
  const auto check = [](const auto& lr) {
    EXPECT_EQ(lr(lr.warmup_steps), lr.peak) << lr.warmup_steps << " of " << lr.total_steps;
    for (Index step = 0; step < lr.warmup_steps; ++step)
      EXPECT_DOUBLE_EQ(lr(step), lr.peak * static_cast<double>(step + 1) / static_cast<double>(lr.warmup_steps + 1));
    const Index end = std::max(lr.total_steps, lr.warmup_steps + 1);
    EXPECT_EQ(lr(end), lr.floor);
    EXPECT_EQ(lr(end + 5), lr.floor);
    if (end > lr.warmup_steps + 1) {
      EXPECT_GT(lr(end - 1), lr.floor);
    }
  };
  for (const Index warmup : {0, 1, 2, 3, 5, 8})
    for (const Index total : {0, 1, 3, 4, 6}) {
      check(nn::WarmupCosine{.peak = .7, .warmup_steps = warmup, .total_steps = total, .floor = .1});
      check(nn::WarmupLinear{.peak = .7, .warmup_steps = warmup, .total_steps = total, .floor = .1});
    }
  EXPECT_DOUBLE_EQ((nn::StepDecay{.peak = 1, .step_size = 3, .gamma = .5, .warmup_steps = 2})(2), 1);
  EXPECT_EQ(message_of<Error>([] { nn::StepDecay{.step_size = 3, .warmup_steps = 3}(0); }),
            "StepDecay: no step has the peak: warmup_steps 3 is not below step_size 3");
}

TEST(Schedule, StaysBetweenZeroAndThePeakForEveryIndex) {
  constexpr Index most = std::numeric_limits<Index>::max();
  const Index places[] = {0, 1, 1000, Index{1} << 53, most / 2, most - 1, most};
  const auto check = [&](const auto& lr) {
    double last = -1;
    bool falls = false;
    for (const Index step : places) {
      const double rate = lr(step);
      EXPECT_GE(rate, 0) << step;
      EXPECT_LE(rate, lr.peak) << step;
      falls = falls || rate < last;
      if (falls) {
        EXPECT_LE(rate, last) << step;
      }
      last = rate;
    }
  };
  for (const Index warmup : places)
    for (const double floor : {0., .1, 1.}) {
      for (const Index total : places) {
        check(nn::WarmupCosine{.peak = 1, .warmup_steps = warmup, .total_steps = total, .floor = floor});
        check(nn::WarmupLinear{.peak = 1, .warmup_steps = warmup, .total_steps = total, .floor = floor});
      }
      check(nn::StepDecay{.peak = 1, .step_size = most, .gamma = floor, .warmup_steps = std::min(warmup, most - 1)});
      check(nn::StepDecay{.peak = 1, .step_size = 1, .gamma = floor});
    }
  EXPECT_DOUBLE_EQ((nn::WarmupCosine{.peak = 2, .warmup_steps = most})(most / 2), 1);
  EXPECT_EQ((nn::WarmupCosine{.peak = .3, .floor = .1})(0), .3) << "not one bit less";
  EXPECT_EQ(message_of<Error>([] { nn::StepDecay{.peak = 1, .step_size = 1, .gamma = 2}(5000); }),
            "StepDecay: the rate of step 5000 is not finite: peak 1, gamma 2");
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  EXPECT_EQ(message_of<Error>([] { nn::WarmupCosine{}(-1); }), "WarmupCosine: step is below 0: -1");
  EXPECT_EQ(message_of<Error>([] { nn::WarmupCosine{.peak = -1}(0); }), "WarmupCosine: peak is negative or not finite: -1");
  EXPECT_EQ(message_of<Error>([] { nn::WarmupLinear{.floor = NAN}(0); }), "WarmupLinear: floor is negative or not finite: nan");
  EXPECT_EQ(message_of<Error>([] { nn::StepDecay{.step_size = 0}(0); }), "StepDecay: step_size is below 1: 0");
  EXPECT_GT((nn::WarmupCosine{.total_steps = std::numeric_limits<Index>::max()})(5), 0);
}

TEST(DecayGroups, MatricesDecayAndTheRestDoesNot) {
  const nn::GPT m({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 2});
  const auto groups = nn::decay_groups(m, {.lr = 0.5, .weight_decay = 0.2});
  ASSERT_EQ(groups.size(), 2U);
  std::size_t count = 0;
  for (std::size_t g = 0; g < 2; ++g) {
    EXPECT_EQ(groups[g].options.lr, 0.5);
    EXPECT_EQ(groups[g].options.weight_decay, g == 0 ? 0.2 : 0);
    for (const auto& [name, p] : groups[g].params.items()) EXPECT_EQ(p.dim() >= 2, g == 0) << name;
    count += groups[g].params.items().size();
  }
  EXPECT_EQ(count, nn::parameters(m).size()) << "tied ones once";
  EXPECT_EQ(groups[0].params.items()[0].first, "transformer.wte.weight");

  // With gradients of zero a step only decays.
  nn::AdamW opt(groups);
  const std::vector<Tensor> before = [&] {
    std::vector<Tensor> out;
    for (const auto& [name, p] : nn::named_parameters(m)) out.push_back(p.detach().clone());
    return out;
  }();
  (sum(m(zeros({1, 4}, i64))) * 0).backward();
  opt.step();
  std::size_t i = 0;
  for (const auto& [name, p] : nn::named_parameters(m)) {
    EXPECT_TRUE(near(p, before[i] * (p.dim() >= 2 ? 0.9 : 1), 1e-6)) << name;
    ++i;
  }
  EXPECT_TRUE(opt.state_dict().contains("transformer.ln_f.bias.exp_avg"));
}

TEST(DecayGroups, LeavesOutEmptyGroupsAndTakesOtherOptimizers) {
  const nn::Linear bare(3, 2, false);
  EXPECT_EQ(nn::decay_groups(bare).size(), 1U);
  nn::SGD opt(nn::decay_groups(nn::Linear(3, 2), nn::SGDOptions{.lr = 0.1, .weight_decay = 0.1}));
  EXPECT_EQ(opt.lr(1), 0.1);
}

/// k parts of a batch, each loss divided by k, sum to the gradient of the whole.
TEST(Accumulation, PartsOfABatchEqualTheWhole) {
  manual_seed(1);
  nn::GPT whole({.vocab_size = 7, .block_size = 6, .n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = 0});
  nn::to(whole, f64);
  nn::GPT parts = nn::clone(whole);
  const Tensor idx = randint(0, 7, {6, 6}), targets = randint(0, 7, {6, 6});
  const auto loss_of = [](const nn::GPT& m, const Tensor& x, const Tensor& y) { return cross_entropy(reshape(m(x), {-1, 7}), reshape(y, {-1})); };
  nn::AdamW whole_opt(nn::decay_groups(whole, {.lr = 1e-2})), parts_opt(nn::decay_groups(parts, {.lr = 1e-2}));
  for (int step = 0; step < 3; ++step) {
    whole_opt.zero_grad();
    loss_of(whole, idx, targets).backward();
    const double whole_norm = nn::clip_grad_norm(nn::parameters(whole), 0.5);
    whole_opt.step();

    parts_opt.zero_grad();
    for (Index k = 0; k < 3; ++k) (loss_of(parts, slice(idx, 0, 2 * k, 2 * k + 2), slice(targets, 0, 2 * k, 2 * k + 2)) / 3).backward();
    EXPECT_NEAR(nn::clip_grad_norm(nn::parameters(parts), 0.5), whole_norm, 1e-12 * whole_norm);
    const std::vector<Tensor> got = nn::parameters(parts), want = nn::parameters(whole);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(near(got[i].grad(), want[i].grad(), 1e-9));
    parts_opt.step();
  }
}

}  // namespace
}  // namespace heed
