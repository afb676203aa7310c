#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradcheck.h"

namespace heed {

/// How far f32 may be from f64.
struct KernelcheckOptions {
  double tolerance = 64;   ///< error allowed, in the unit of KernelcheckEntry::error; heed's own ops stay below 20
  std::uint64_t seed = 0;  ///< of the cotangents
};

/// A result that f32 and f64 both computed.
struct KernelcheckEntry {
  std::string name;      ///< "output 0", "gradient of x"
  Dims index;            ///< of the worst element
  double f32_value = 0;  ///< of the worst element
  double f64_value = 0;  ///< of the same element
  /// |f32 - f64| in units of f32's epsilon times the largest magnitude in the element's row (along the last dim), or of the most that this row moves
  /// in f64 when inputs and cotangents change by that epsilon, where it is more: where large terms cancel to a small result. Rows of less than a
  /// tenth of the largest element are measured beside that tenth.
  double error = 0;
  double bound = 0;  ///< what `error` may be: the tolerance times the square root of the longest sum
  bool ok = false;   ///< error <= bound
};

/// What a comparison of f32 with f64 found.
struct KernelcheckReport {
  bool ok = false;                               ///< every entry is
  std::string message;                           ///< a table for people
  std::vector<KernelcheckEntry> entries;         ///< one for each output and each gradient
  explicit operator bool() const { return ok; }  ///< `if (kernelcheck(...))`
};

namespace detail {
using FunctionOfList = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
KernelcheckReport run_kernelcheck(const FunctionOfList&, const std::vector<Tensor>&, const KernelcheckOptions&);
}  // namespace detail

/// Float against double: runs `fn` forward and backward on the inputs rounded to f32, and on the same numbers in f64, and compares outputs and
/// gradients. What vouches for f32 kernels, oneDNN's included, once gradcheck has vouched for the formula in f64. Inputs that are not floats are
/// passed as they are. A kernel that loses more than the inputs' own rounding explains fails: `exp(x) - 1` near 0 in place of `expm1`, or a million
/// terms added one by one.
template <detail::FunctionOfTensors F>
KernelcheckReport kernelcheck(F&& fn, const std::vector<Tensor>& inputs, const KernelcheckOptions& options = {}) {
  return detail::run_kernelcheck([&](const std::vector<Tensor>& in) { return detail::as_outputs(fn(in)); }, inputs, options);
}

}  // namespace heed
