#pragma once

#include "module.h"

namespace heed::nn {

/// x weight^T + bias: x (..., in) -> (..., out).
///
/// Starts as PyTorch's: weight and bias uniform in +-1 / sqrt(in). ShapeError for sizes below 0 and for an x that does not end in `in`.
class Linear {
 public:
  Linear(Index in, Index out, bool bias = true);

  Tensor operator()(const Tensor& x, Caller = Caller::here()) const;

  void visit(Visitor& v) { v("weight", weight), v("bias", bias); }

  Tensor weight;  ///< (out, in)
  Tensor bias;    ///< (out), or undefined
};

}  // namespace heed::nn
