#pragma once

#include <initializer_list>

#include "module.h"

namespace heed::nn {

/// (x - mean) / sqrt(var + eps) * weight + bias over the trailing dims, usually one; var without Bessel's correction. Ba, Kiros and Hinton, 2016.
/// Starts with weight 1 and bias 0. ShapeError for an x that does not end in these dims.
class LayerNorm {
 public:
  /// Error for an eps that is negative or not finite.
  explicit LayerNorm(const Dims& normalized_shape, double eps = 1e-5);
  /// `LayerNorm({16})`
  explicit LayerNorm(std::initializer_list<Index> normalized_shape, double epsilon = 1e-5) : LayerNorm(Dims(normalized_shape), epsilon) {}

  Tensor operator()(const Tensor& x, Caller = Caller::here()) const;  ///< of x's shape

  void visit(Visitor& v) { v("weight", weight), v("bias", bias); }  ///< state: weight, bias

  Tensor weight;  ///< of the normalized shape
  Tensor bias;    ///< of the normalized shape
  double eps;     ///< beside the variance, so that constant rows give the bias
};

}  // namespace heed::nn
