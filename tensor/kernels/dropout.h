#pragma once

#include <cstdint>

#include "../dtype.h"

namespace heed::kernels {

/// out[i] = 0 where uniform_at(seed, position + i) < p, else `kept`: what dropout multiplies by. n numbers, 0 <= p <= 1, T float or double.
template <class T>
void dropout_scale(T* out, std::uint64_t seed, std::uint64_t position, Index n, double p, T kept);

}  // namespace heed::kernels
