#pragma once

#include <array>
#include <vector>

#include "tensor.h"

namespace heed {

// One counter-based generator for the process: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). Element i of a call depends on the seed, the numbers drawn before and i only: the same bits for every thread count,
// and the same values (rounded) in f32 and f64.

/// Restarts the generator; the state that a process starts with is manual_seed(0).
void manual_seed(std::uint64_t seed);

/// Where the generator stands: two numbers to be kept with a checkpoint.
struct RngState {
  std::uint64_t seed = 0;                                              ///< as given to `manual_seed`
  std::uint64_t offset = 0;                                            ///< numbers drawn since
  friend bool operator==(const RngState&, const RngState&) = default;  ///< the same numbers follow
};
RngState rng_state();                 ///< of the process, for `set_rng_state`
void set_rng_state(const RngState&);  ///< the numbers that came after it come again

/// Uniform in [0, 1): multiples of 2^-53 in f64, the same numbers rounded down to multiples of 2^-24 in f32, so that 1 never appears.
/// DTypeError unless f32 or f64.
Tensor rand(const Dims& shape, DType = f32);
/// Standard normal, by Box and Muller in double: elements 2k and 2k + 1 are r cos(t) and r sin(t) with r = sqrt(-2 log(1 - u)), t = 2 pi v,
/// u and v the uniform numbers 2k and 2k + 1 of the call. The tails end at 8.6. DTypeError unless f32 or f64.
Tensor randn(const Dims& shape, DType = f32);
/// Whole numbers low <= x < high, i64; their probabilities differ by less than 2^-64. IndexError when there are none.
Tensor randint(Index low, Index high, const Dims& shape);

namespace detail {

/// The generator itself: ten rounds over a counter of 128 bits under a key of 64.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Reserves `count` numbers of the stream and returns where they begin: number i is `uniform_at(seed, begin + i)`.
/// Odd counts are rounded up: one turn of the generator makes two numbers, and every reservation begins with a fresh one.
RngState reserve_random(std::uint64_t count);
/// In [0, 1), 53 bits: a function of seed and position only.
double uniform_at(std::uint64_t seed, std::uint64_t position);
/// out[i] = uniform_at(seed, position + i) for n numbers, in half the time.
void uniforms_at(double* out, std::uint64_t seed, std::uint64_t position, Index n);

}  // namespace detail
}  // namespace heed
