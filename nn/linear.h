#pragma once

#include "module.h"

namespace heed::nn {

/// x weight^T + bias: x (..., in) -> (..., out).
///
/// Starts as PyTorch's: weight and bias uniform in +-1 / sqrt(in). ShapeError for sizes below 0 and for an x that does not end in `in`.
class Linear {
 public:
  /// Sizes of the last dim before and after; without `bias` the layer has none.
  Linear(Index in, Index out, bool bias = true);

  Tensor operator()(const Tensor& x, Caller = Caller::here()) const;  ///< (..., in) -> (..., out)

  void visit(Visitor& v) { v("weight", weight), v("bias", bias); }  ///< state: weight, bias

  Tensor weight;  ///< (out, in)
  Tensor bias;    ///< (out), or undefined
};

}  // namespace heed::nn
