#pragma once

#include <functional>
#include <string>

#include "../tensor/tensor.h"

namespace heed::nn {

/// What check_causality found.
struct CausalityReport {
  bool ok = false;                               ///< no output depends on a later input
  std::string message;                           ///< what was looked at, or the first leak in words
  Index query = -1;                              ///< the first output position that leaks
  Index key = -1;                                ///< the later input position that it depends on
  explicit operator bool() const { return ok; }  ///< `if (check_causality(...))`
};

/// Whether outputs of `fn` at a position depend on no later input: x (B, T, C), f32 or f64, to an output (B, T, ...).
///
/// Two proofs. The Jacobian's blocks above the diagonal are exactly 0, for every query and every later key. And earlier outputs stay the same to the
/// bit when all later inputs change, to other random values, to their negatives and to huge ones (1e30 in f64, 1e15 in f32); NaN is not planted,
/// since 0 * NaN is NaN in a product. ShapeError for other shapes.
CausalityReport check_causality(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace heed::nn
