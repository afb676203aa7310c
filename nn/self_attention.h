#pragma once

#include "../autograd/attention.h"
#include "init.h"
#include "module.h"

namespace heed::nn {

/// One head of self-attention: softmax(q k^T / sqrt(d_head) + mask) v with q = x W_q, k = x W_k, v = x W_v.
///
/// x (..., T, d_model) -> output (..., T, d_head) and weights (..., T, T), both differentiable. ShapeError for an x that does not end in d_model.
/// Scale, dropout and what a mask means are those of scaled_dot_product_attention.
class SingleHeadSelfAttention {
 public:
  /// Three projections from d_model to d_head without bias. ShapeError for sizes below 0.
  SingleHeadSelfAttention(Index d_model, Index d_head, Init = Init::xavier);

  /// Attention of every position of x to those that the mask allows.
  Attention operator()(const Tensor& x, const Mask& mask = {}, Caller caller = Caller::here()) const { return attend(x, {.mask = mask}, caller); }
  /// Also with `{.need_weights = false}` and the like. A template, so that empty braces mean the mask.
  template <std::same_as<AttentionOptions> Options = AttentionOptions>
  Attention operator()(const Tensor& x, const Options& options, Caller caller = Caller::here()) const {
    return attend(x, options, caller);
  }

  void visit(Visitor& v) { v("W_q", W_q), v("W_k", W_k), v("W_v", W_v); }  ///< state: W_q, W_k, W_v

  Tensor W_q;  ///< (d_model, d_head): what a position asks for
  Tensor W_k;  ///< (d_model, d_head): what a position is asked by
  Tensor W_v;  ///< (d_model, d_head): what a position answers

 private:
  Attention attend(const Tensor& x, const AttentionOptions&, Caller) const;
};

}  // namespace heed::nn
