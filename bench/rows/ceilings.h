#pragma once

#include <heed/tensor/dtype.h>

namespace heed::bench {

/// What the machine does a second at best, on some threads: medians of short samples, in operations or bytes.
struct Ceilings {
  double fma_f32 = 0, fma_f64 = 0;  ///< multiply and add count as two: independent sums in registers
  double exp_f32 = 0, exp_f64 = 0;  ///< by a polynomial for arguments that need no care, in the first cache
  double copy = 0;                  ///< of memory far larger than caches; read and written bytes both count

  double fma(DType t) const { return t == f64 ? fma_f64 : fma_f32; }
  double exp(DType t) const { return t == f64 ? exp_f64 : exp_f32; }
};

/// About `seconds` for each of them.
Ceilings measure_ceilings(int threads, double seconds);
/// fma_f32 alone: whether the machine is still what it was.
double measure_fma(int threads, double seconds);

}  // namespace heed::bench
