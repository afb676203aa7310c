#pragma once

#include <vector>

#include "dropout.h"
#include "embedding.h"
#include "kv_cache.h"
#include "layer_norm.h"
#include "linear.h"
#include "module.h"

namespace heed::nn {

/// The defaults are GPT-2's smallest.
struct GPTConfig {
  Index vocab_size = 50257;
  Index block_size = 1024;  ///< positions that the model knows
  Index n_layer = 12;
  Index n_head = 12;
  Index n_embd = 768;
  double dropout = 0.1;  ///< of embeddings, attention weights and both branches of a block, in training
  double layer_norm_epsilon = 1e-5;
};

/// Causal attention of a block. One matrix makes queries, keys and values, in this order; heads lie side by side in each.
class GPTAttention {
 public:
  explicit GPTAttention(const GPTConfig&);

  /// x (B, T, n_embd) -> the same shape. With a cache x holds the positions after those in it.
  Tensor operator()(const Tensor& x, KVCache* cache = nullptr, Caller = Caller::here()) const;

  void visit(Visitor& v) { v("c_attn", c_attn), v("c_proj", c_proj), v("resid_dropout", resid_dropout), v("training", training); }

  Linear c_attn, c_proj;
  Dropout resid_dropout;
  Index n_head;
  double attn_dropout;
  bool training = true;
};

/// c_proj(gelu(c_fc(x))), four times as wide inside, with the tanh form of gelu.
class GPTMLP {
 public:
  explicit GPTMLP(const GPTConfig&);

  Tensor operator()(const Tensor& x, Caller = Caller::here()) const;

  void visit(Visitor& v) { v("c_fc", c_fc), v("c_proj", c_proj), v("dropout", dropout); }

  Linear c_fc, c_proj;
  Dropout dropout;
};

/// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class GPTBlock {
 public:
  explicit GPTBlock(const GPTConfig&);

  Tensor operator()(const Tensor& x, KVCache* cache = nullptr, Caller = Caller::here()) const;

  void visit(Visitor& v) { v("ln_1", ln_1), v("attn", attn), v("ln_2", ln_2), v("mlp", mlp); }

  LayerNorm ln_1;
  GPTAttention attn;
  LayerNorm ln_2;
  GPTMLP mlp;
};

/// Everything below the head: ln_f(h[n-1](... h[0](wte[idx] + wpe[0..T)))).
class GPTTransformer {
 public:
  explicit GPTTransformer(const GPTConfig&);

  /// idx (B, T) -> (B, T, n_embd); as GPT in all else.
  Tensor operator()(const Tensor& idx, std::vector<KVCache>* caches = nullptr, Caller = Caller::here()) const;

  void visit(Visitor& v) { v("wte", wte), v("wpe", wpe), v("drop", drop), v("h", h), v("ln_f", ln_f); }

  Embedding wte, wpe;
  Dropout drop;
  std::vector<GPTBlock> h;
  LayerNorm ln_f;
};

/// A decoder that predicts the next token: Radford et al., "Language models are unsupervised multitask learners" (GPT-2), 2019.
///
///   idx (B, T), i64 -> logits (B, T, vocab_size); logits at t depend on idx[:, :t+1] only
///
/// Names are those of published GPT-2 checkpoints; matrices are (out, in) as everywhere here, where those files hold (in, out). The head has no
/// bias and its weight is the table that reads the tokens: `lm_head.weight` and `transformer.wte.weight` are one tensor. Starts as GPT-2: matrices
/// and tables normal with deviation 0.02, those that end a residual branch (`c_proj`) with 0.02 / sqrt(2 n_layer), biases 0. No attention weights are
/// kept, so that training needs memory linear in T.
///
/// Error for a config without sense (ShapeError: sizes below 1, n_head that does not divide n_embd).
class GPT {
 public:
  explicit GPT(const GPTConfig& = {});

  /// With caches (one for each layer; an empty vector gets them) idx holds the positions after those in the caches, which it joins; needs NoGrad. An
  /// error leaves the caches as they were. ShapeError for an idx of another rank, with both numbers for more positions than block_size, and for
  /// caches of another model; IndexError for a token outside of [0, vocab_size), DTypeError unless idx is i64.
  Tensor operator()(const Tensor& idx, std::vector<KVCache>* caches = nullptr, Caller = Caller::here()) const;

  void visit(Visitor& v) { v("transformer", transformer), v("lm_head", lm_head); }

  const GPTConfig& config() const { return config_; }

  GPTTransformer transformer;
  Linear lm_head;

 private:
  GPTConfig config_;
};

}  // namespace heed::nn
