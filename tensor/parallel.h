#pragma once

#include "dtype.h"

namespace heed {

/// Threads for one op, at least 1 (Error otherwise); the process starts with OMP_NUM_THREADS or the number of cores. Shared with oneDNN.
/// A build without OpenMP runs on one thread whatever is asked for.
void set_num_threads(int n);
/// The same bits for every thread count, at some cost; otherwise the same thread count gives the same bits.
void set_deterministic(bool);

namespace detail {
int num_threads();
bool is_deterministic();
}  // namespace detail

}  // namespace heed
