#pragma once

#include <functional>
#include <string>

#include "../tensor/tensor.h"

namespace heed::nn {

struct CausalityReport {
  bool ok = false;
  std::string message;         ///< what was looked at, or the first leak in words
  Index query = -1, key = -1;  ///< the first pair that leaks: output position `query` depends on the later input position `key`
  explicit operator bool() const { return ok; }
};

/// Whether outputs of `fn` at a position depend on no later input: x (B, T, C), f32 or f64, to an output (B, T, ...).
///
/// Two proofs. The Jacobian's blocks above the diagonal are exactly 0, for every query and every later key. And earlier outputs stay the same to the
/// bit when all later inputs change, to other random values, to their negatives and to huge ones (1e30 in f64, 1e15 in f32); NaN is not planted,
/// since 0 * NaN is NaN in a product. ShapeError for other shapes.
CausalityReport check_causality(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace heed::nn
