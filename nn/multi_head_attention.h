#pragma once

#include <concepts>
#include <optional>

#include "../autograd/attention.h"
#include "kv_cache.h"
#include "linear.h"
#include "module.h"
#include "positions.h"

namespace heed::nn {

/// What heads of attention are made with beside their number.
struct MultiHeadAttentionOptions {
  bool bias = true;                          ///< of all four projections
  std::optional<Index> kdim = {};            ///< size of a key's input; embed_dim when absent
  std::optional<Index> vdim = {};            ///< size of a value's input; embed_dim when absent
  std::optional<Index> num_kv_heads = {};    ///< heads of keys and values, each shared by num_heads / num_kv_heads neighboring query heads
  double dropout = 0;                        ///< of the weights, in training
  std::optional<RotaryOptions> rotary = {};  ///< turns queries and keys, head by head, to where they stand: keys from its offset on, queries where
                                             ///< the mask places them (0 without an offset), all after those in a cache
};

/// Heads of attention side by side, joined by a projection: Vaswani et al., "Attention is all you need", 2017; with num_kv_heads, Ainslie et al.,
/// "GQA", 2023.
///
///   q = x W_q^T + b_q, split into num_heads pieces of embed_dim / num_heads; k and v likewise
///   output = concat_h(softmax(q_h k_h^T / sqrt(embed_dim / num_heads) + mask) v_h) W_o^T + b_o
///
/// Names, layout and start are those of PyTorch's MultiheadAttention, so that checkpoints move both ways. Inputs are (B, T, size), or (T, size) for
/// one sequence; output (B, Tq, embed_dim), weights (B, num_heads, Tq, Tk), without B for one sequence. Masks and what they mean are those of
/// scaled_dot_product_attention over scores (B, num_heads, Tq, Tk); tensors in them are (Tq, Tk) or of rank 4, rank 3 is refused (ShapeError).
/// `Mask::lengths` runs over the batch. Dropout is the layer's own unless options name another.
class MultiHeadAttention {
 public:
  /// ShapeError for head counts that do not divide and for rotary positions in heads of an odd size, Error for a dropout outside of [0, 1].
  MultiHeadAttention(Index embed_dim, Index num_heads, const MultiHeadAttentionOptions& = {});

  /// Self-attention. With a cache x holds the positions after those in the cache, which it joins: queries attend to both, and causal, window and
  /// alibi count from the cache's length. Tk in a mask is the length after. An error leaves the cache as it was.
  Attention operator()(const Tensor& x, const Mask& mask = {}, KVCache* cache = nullptr, Caller caller = Caller::here()) const {
    return attend(x, x, x, {.mask = mask}, cache, caller);
  }
  /// Also with `{.need_weights = false}` and the like. Templates, so that empty braces mean the mask.
  template <std::same_as<AttentionOptions> Options = AttentionOptions>
  Attention operator()(const Tensor& x, const Options& options, KVCache* cache = nullptr, Caller caller = Caller::here()) const {
    return attend(x, x, x, options, cache, caller);
  }
  /// Queries from q (B, Tq, embed_dim), keys from k (B, Tk, kdim), values from v (B, Tk, vdim).
  Attention operator()(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask = {}, Caller caller = Caller::here()) const {
    return attend(q, k, v, {.mask = mask}, nullptr, caller);
  }
  /// As above, with options.
  template <std::same_as<AttentionOptions> Options = AttentionOptions>
  Attention operator()(const Tensor& q, const Tensor& k, const Tensor& v, const Options& options, Caller caller = Caller::here()) const {
    return attend(q, k, v, options, nullptr, caller);
  }

  /// State: in_proj_weight or q_proj_weight, k_proj_weight and v_proj_weight; in_proj_bias, out_proj.weight, out_proj.bias.
  void visit(Visitor& v) {
    v("in_proj_weight", in_proj_weight), v("q_proj_weight", q_proj_weight), v("k_proj_weight", k_proj_weight), v("v_proj_weight", v_proj_weight);
    v("in_proj_bias", in_proj_bias), v("out_proj", out_proj), v("training", training);
  }

  Index embed_dim() const { return embed_dim_; }        ///< size of queries' input and of the output
  Index num_heads() const { return num_heads_; }        ///< of queries
  Index num_kv_heads() const { return num_kv_heads_; }  ///< of keys and values; num_heads unless shared

  Tensor in_proj_weight;                ///< (3 embed_dim, embed_dim), rows of q, then k, then v; undefined beside the next three
  Tensor q_proj_weight;                 ///< (embed_dim, embed_dim), where keys or values have sizes of their own
  Tensor k_proj_weight;                 ///< (num_kv_heads head size, kdim), beside q_proj_weight
  Tensor v_proj_weight;                 ///< (num_kv_heads head size, vdim), beside q_proj_weight
  Tensor in_proj_bias;                  ///< of q, then k, then v; undefined without bias
  Linear out_proj;                      ///< W_o and b_o
  double dropout;                       ///< of the weights, in training
  bool training = true;                 ///< set by `train`
  std::optional<RotaryOptions> rotary;  ///< absent: the layer knows no positions

 private:
  Attention attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions&, KVCache*, Caller) const;
  struct Heads;
  Heads project(const Tensor& q, const Tensor& k, const Tensor& v, Caller) const;
  Attention attend_heads(const Heads&, const AttentionOptions&, Caller) const;

  Index embed_dim_, num_heads_, num_kv_heads_;
};

}  // namespace heed::nn
