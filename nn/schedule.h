#pragma once

#include "../tensor/layout.h"

namespace heed::nn {

// Learning rates as functions of the step 0, 1, 2, ... and of nothing else: no state to save, no order of calls.
//
//   const nn::WarmupCosine lr{.peak = 3e-4, .warmup_steps = 100, .total_steps = 5000, .floor = 3e-5};
//   for (Index step = 0; step < lr.total_steps; ++step) { ...; opt.set_lr(lr(step)); opt.step(); }
//
// Warm-up is the line peak (step + 1) / (warmup_steps + 1): the first step moves a little already, and step warmup_steps has the peak, whatever the
// other members are. A run that ends before never gets there. Rates lie between 0 and the larger one of peak and floor, for every step that an Index
// holds. All throw an Error for a negative step and for members that make no sense: rates that are negative or not finite, negative numbers of steps.

/// Warm-up, then floor + (peak - floor) (1 + cos(pi t)) / 2 with t from 0 at warmup_steps to 1 at total_steps, then floor: Loshchilov and Hutter,
/// "SGDR", 2017, without restarts.
struct WarmupCosine {
  double peak = 1e-3;        ///< the largest rate
  Index warmup_steps = 0;    ///< the step that has the peak
  Index total_steps = 1000;  ///< the first step that has the floor, if it lies behind warmup_steps; else the one behind the peak
  double floor = 0;          ///< the last rate

  double operator()(Index step) const;  ///< the rate of a step
};

/// Warm-up, then the line from peak at warmup_steps to floor at total_steps, then floor.
struct WarmupLinear {
  double peak = 1e-3;        ///< the largest rate
  Index warmup_steps = 0;    ///< the step that has the peak
  Index total_steps = 1000;  ///< the first step that has the floor, if it lies behind warmup_steps; else the one behind the peak
  double floor = 0;          ///< the last rate

  double operator()(Index step) const;  ///< the rate of a step
};

/// Warm-up, then peak gamma^n with n the whole number of `step_size` steps since step 0: PyTorch's StepLR. Error for a warm-up that is not over
/// before the first stair ends, and for a rate that a gamma above 1 has made infinite.
struct StepDecay {
  double peak = 1e-3;      ///< the largest rate
  Index step_size = 1000;  ///< at least 1
  double gamma = 0.1;      ///< the factor from one stair to the next
  Index warmup_steps = 0;  ///< stairs are counted from step 0 all the same

  double operator()(Index step) const;  ///< the rate of a step
};

}  // namespace heed::nn
