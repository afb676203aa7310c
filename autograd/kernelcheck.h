#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradcheck.h"

namespace heed {

struct KernelcheckOptions {
  double tolerance = 8;    ///< errors allowed, in the unit below, times the square root of the longest sum
  std::uint64_t seed = 0;  ///< of the cotangents
};

/// A result that f32 and f64 both computed.
struct KernelcheckEntry {
  std::string name;  ///< "output 0", "gradient of x"
  Dims index;        ///< of the worst element
  double f32_value = 0, f64_value = 0;
  /// |f32 - f64| in units of f32's epsilon times the largest magnitude in the element's row (along the last dim), or a hundredth of that in the whole
  /// result where it is larger: smaller rows are what is left of terms that cancelled. Below 1e-5 everything did, and the unit is epsilon.
  double error = 0;
  double bound = 0;
  bool ok = false;
};

struct KernelcheckReport {
  bool ok = false;
  std::string message;  ///< a table for people
  std::vector<KernelcheckEntry> entries;
  explicit operator bool() const { return ok; }
};

namespace detail {
using FunctionOfList = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
KernelcheckReport run_kernelcheck(const FunctionOfList&, const std::vector<Tensor>&, const KernelcheckOptions&);
}  // namespace detail

/// Float against double: runs `fn` forward and backward on the inputs rounded to f32, and on the same numbers in f64, and compares outputs and
/// gradients. What vouches for f32 kernels, oneDNN's included, once gradcheck has vouched for the formula in f64. Inputs that are not floats are
/// passed as they are. The bound grows with the square root of the longest sum, taken to be as long as the largest input or output; a result that
/// suffers cancellation beyond that fails.
template <detail::FunctionOfTensors F>
KernelcheckReport kernelcheck(F&& fn, const std::vector<Tensor>& inputs, const KernelcheckOptions& options = {}) {
  return detail::run_kernelcheck([&](const std::vector<Tensor>& in) { return detail::as_outputs(fn(in)); }, inputs, options);
}

}  // namespace heed
