#pragma once

#include "dropout.h"
#include "layer_norm.h"
#include "linear.h"
#include "multi_head_attention.h"

namespace heed::nn {

/// Between the two products of a feed-forward part.
enum class Activation {
  relu,  ///< max(x, 0)
  gelu,  ///< the erf form, as PyTorch's layer
};

/// PyTorch's names and defaults.
struct TransformerEncoderLayerOptions {
  Index dim_feedforward = 2048;              ///< size between linear1 and linear2
  double dropout = 0.1;                      ///< of attention weights, inside of the feed-forward part, and of both branches, in training
  Activation activation = Activation::relu;  ///< after linear1
  bool norm_first = false;                   ///< which of the two forms below
  double layer_norm_eps = 1e-5;              ///< of both layer norms
};

/// Self-attention and a feed-forward part, each with a residual connection and a layer norm: Vaswani et al., "Attention is all you need", 2017.
///
///   norm last (theirs):  y = norm1(x + attention(x)),  norm2(y + linear2(activation(linear1(y))))
///   norm_first:          y = x + attention(norm1(x)),  y + linear2(activation(linear1(norm2(y))))
///
/// x (B, T, d_model), or (T, d_model) for one sequence, to the same shape; masks as MultiHeadAttention takes them, whose weights are declined. Names
/// and start are those of PyTorch's TransformerEncoderLayer. ShapeError for sizes below 0 and an nhead that does not divide d_model, Error for a
/// dropout outside of [0, 1].
class TransformerEncoderLayer {
 public:
  /// nhead heads over d_model, of which each has an equal part.
  TransformerEncoderLayer(Index d_model, Index nhead, const TransformerEncoderLayerOptions& = {});

  /// With a cache, as MultiHeadAttention: x holds the positions after those in it.
  Tensor operator()(const Tensor& x, const Mask& mask = {}, KVCache* cache = nullptr, Caller = Caller::here()) const;

  /// State: that of the members after "self_attn.", "linear1.", "linear2.", "norm1." and "norm2.".
  void visit(Visitor& v) {
    v("self_attn", self_attn), v("linear1", linear1), v("dropout", dropout), v("linear2", linear2);
    v("norm1", norm1), v("norm2", norm2), v("dropout1", dropout1), v("dropout2", dropout2);
  }

  MultiHeadAttention self_attn;  ///< the first branch
  Linear linear1;                ///< d_model to dim_feedforward
  Linear linear2;                ///< and back
  LayerNorm norm1;               ///< of the first branch
  LayerNorm norm2;               ///< of the second branch
  Dropout dropout;               ///< after the activation
  Dropout dropout1;              ///< of the first branch
  Dropout dropout2;              ///< of the second branch
  Activation activation;         ///< after linear1
  bool norm_first;               ///< which of the two forms
};

}  // namespace heed::nn
