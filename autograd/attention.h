#pragma once

#include <optional>
#include <string>

#include "../tensor/tensor.h"
#include "mask.h"

namespace heed {

/// How attention is computed; the results agree up to rounding.
enum class Kernel {
  automatic,  ///< tiled, or composed where the weights are asked for
  composed,   ///< ops, one after the other, with matrices of Tq x Tk between them
  tiled,  ///< one op that never holds more than a tile of the weights: O(T) extra memory, masked tiles skipped; weights, when asked for, in a second
          ///< pass
};

/// How attention is wanted, for designated initializers: `{.mask = Mask::causal(), .need_weights = false}`.
struct AttentionOptions {
  Mask mask = {};                     ///< who may attend to whom; everybody to everything when absent
  std::optional<double> scale = {};   ///< of the scores; 1 / sqrt(d_k) when absent
  double dropout_p = 0;               ///< of the weights, in training only; the returned weights are those before; 1 gives exact zeros
  bool training = false;              ///< whether dropout works
  bool need_weights = true;           ///< whether to return the weights
  Kernel kernel = Kernel::automatic;  ///< which code does it
};

/// What attention gives: `auto [output, weights] = ...`.
struct Attention {
  Tensor output;   ///< (..., Tq, d_v)
  Tensor weights;  ///< (..., Tq, Tk), rows sum to 1; undefined unless asked for
};

/// softmax(scale q k^T + mask) v: Vaswani et al., "Attention is all you need", 2017.
///
/// q (..., Tq, d_k), k (..., Tk, d_k), v (..., Tk, d_v); leading dims broadcast. A query that may attend to nothing has zero output, weights and
/// gradients; so have all queries when there are no keys. A NaN or an infinity in a value that no query may attend to, or whose weights are dropped,
/// may or may not show in the output. Both results are differentiable, to any order, with every kernel. q is scaled first, so that only a scaled
/// score can overflow; a query whose largest score does gives NaN. ShapeError names the sizes that do not fit.
Attention scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& = {}, Caller = Caller::here());

/// What a call would do.
struct AttentionPlan {
  Kernel kernel = Kernel::automatic;  ///< never automatic
  std::string reason;                 ///< why this kernel, in words
  double flops = 0;                   ///< of the two products of the forward, over the pairs that position and lengths allow
  double bytes = 0;                   ///< that the forward allocates beside its results: scores, weights and masks, or row statistics and tiles
};
/// Looks at shapes and options as scaled_dot_product_attention does, with its errors, and computes nothing.
AttentionPlan attention_plan(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& = {});

}  // namespace heed
