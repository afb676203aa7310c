#pragma once

#include "module.h"

namespace heed::nn {

/// Rows of a table: ids (i64) of any shape -> (..., dim). Starts standard normal. IndexError for an id outside of [0, n).
class Embedding {
 public:
  /// n rows of `dim` numbers. ShapeError for sizes below 0.
  Embedding(Index n, Index dim);

  Tensor operator()(const Tensor& ids, Caller = Caller::here()) const;  ///< ids (...) -> (..., dim)

  void visit(Visitor& v) { v("weight", weight); }  ///< state: weight

  Tensor weight;  ///< (n, dim)
};

}  // namespace heed::nn
