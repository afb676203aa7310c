#pragma once

#include <string>
#include <vector>

#include "../autograd/mask.h"
#include "../tensor/tensor.h"

namespace heed::nn {

/// How sharp attention is, and whether gradients still pass through its softmax.
///
/// A softmax passes gradients by p_i (delta_ij - p_j): where every p is near 0 or 1 that is 0, and queries and keys no longer learn.
struct AttentionReport {
  Tensor entropy;  ///< -sum p log p of each row, (..., Tq) in f64: 0 for one key, log n for n keys alike
  Tensor largest;  ///< largest weight of each row
  Tensor gauge;    ///< mean of p (1 - p) over the keys of each row: the diagonal of the softmax's Jacobian
  /// One head over all batch entries. Means are over the rows that have a choice: two keys or more.
  struct Head {
    double entropy = 0;      ///< mean of the rows' entropy
    double largest = 0;      ///< mean of the rows' largest weight
    double gauge = 0;        ///< mean of the rows' gauge
    double passed = 0;       ///< mean over these rows of sum p (1 - p) / (1 - 1/n): 1 where n keys weigh alike, 0 where one has all
    Index rows = 0;          ///< how many rows these are, of all batch entries
    bool saturated = false;  ///< passed < 0.2: four fifths of what could pass are lost
  };
  std::vector<Head> heads;  ///< in order; one of weights without heads
  bool saturated = false;   ///< any head
  std::string text;         ///< a table of the heads, for people
};

/// Of weights (B, H, Tq, Tk), (H, Tq, Tk) or (Tq, Tk). `mask` is the one that the weights were computed with: keys that it forbids do not count, so
/// that the first row under a causal mask does not look saturated. ShapeError for other ranks, and as attention for a mask that does not fit.
AttentionReport attention_report(const Tensor& weights, const Mask& mask = {});

}  // namespace heed::nn
