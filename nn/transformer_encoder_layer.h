#pragma once

#include "dropout.h"
#include "layer_norm.h"
#include "linear.h"
#include "multi_head_attention.h"

namespace heed::nn {

enum class Activation {
  relu,
  gelu,  ///< the erf form, as PyTorch's layer
};

struct TransformerEncoderLayerOptions {
  Index dim_feedforward = 2048;
  double dropout = 0.1;  ///< of attention weights, inside of the feed-forward part, and of both branches, in training
  Activation activation = Activation::relu;
  bool norm_first = false;
  double layer_norm_eps = 1e-5;
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
  TransformerEncoderLayer(Index d_model, Index nhead, const TransformerEncoderLayerOptions& = {});

  /// With a cache, as MultiHeadAttention: x holds the positions after those in it.
  Tensor operator()(const Tensor& x, const Mask& mask = {}, KVCache* cache = nullptr, Caller = Caller::here()) const;

  void visit(Visitor& v) {
    v("self_attn", self_attn), v("linear1", linear1), v("dropout", dropout), v("linear2", linear2);
    v("norm1", norm1), v("norm2", norm2), v("dropout1", dropout1), v("dropout2", dropout2);
  }

  MultiHeadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;
  Dropout dropout, dropout1, dropout2;  ///< after the activation, and of the two branches
  Activation activation;
  bool norm_first;
};

}  // namespace heed::nn
