#pragma once

#include <vector>

#include "tensor.h"

namespace heed {

// One counter-based generator for the process: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). Element i of a call depends on the seed, the numbers drawn before and i only: the same bits for every thread count,
// and the same values (rounded) in f32 and f64.

/// Restarts the generator; the state that a process starts with is manual_seed(0).
void manual_seed(std::uint64_t seed);

struct RngState {
  std::uint64_t seed = 0, offset = 0;
  friend bool operator==(const RngState&, const RngState&) = default;
};
RngState rng_state();
void set_rng_state(const RngState&);

/// Uniform in [0, 1).
Tensor rand(const Dims& shape, DType = f32);
/// Standard normal, by Box and Muller.
Tensor randn(const Dims& shape, DType = f32);
/// Whole numbers low <= x < high, i64. IndexError when there are none.
Tensor randint(Index low, Index high, const Dims& shape);

namespace detail {

/// Reserves `count` numbers of the stream and returns where they begin: number i is `uniform_at(seed, begin + i)`.
RngState reserve_random(std::uint64_t count);
/// In [0, 1), 53 bits: a function of seed and position only.
double uniform_at(std::uint64_t seed, std::uint64_t position);

}  // namespace detail
}  // namespace heed
