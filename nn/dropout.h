#pragma once

#include "module.h"

namespace heed::nn {

/// In training: 0 with probability p, else x / (1 - p). Otherwise, or with p = 0: x itself.
class Dropout {
 public:
  /// Error for a p outside of [0, 1].
  explicit Dropout(double p = 0.5);

  Tensor operator()(const Tensor& x, Caller = Caller::here()) const;

  void visit(Visitor& v) { v("training", training); }

  double p;
  bool training = true;
};

}  // namespace heed::nn
