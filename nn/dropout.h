#pragma once

#include "module.h"

namespace heed::nn {

/// In training: 0 with probability p, else x / (1 - p). Otherwise, or with p = 0: x itself.
class Dropout {
 public:
  /// Error for a p outside of [0, 1].
  explicit Dropout(double p = 0.5);

  Tensor operator()(const Tensor& x, Caller = Caller::here()) const;  ///< of any shape

  void visit(Visitor& v) { v("training", training); }  ///< no state

  double p;              ///< of an element to become 0
  bool training = true;  ///< set by `train`
};

}  // namespace heed::nn
