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
  Index vocab_size = 50257;          ///< tokens are 0 to vocab_size - 1
  Index block_size = 1024;           ///< positions that the model knows
  Index n_layer = 12;                ///< blocks
  Index n_head = 12;                 ///< of each block; divides n_embd
  Index n_embd = 768;                ///< C, the size of a position
  double dropout = 0.1;              ///< of embeddings, attention weights and both branches of a block, in training
  double layer_norm_epsilon = 1e-5;  ///< of every layer norm
};

/// Causal attention of a block. One matrix makes queries, keys and values, in this order; heads lie side by side in each.
class GPTAttention {
 public:
  explicit GPTAttention(const GPTConfig&);  ///< Errors as GPT

  /// x (B, T, n_embd) -> the same shape. With a cache x holds the positions after those in it.
  Tensor operator()(const Tensor& x, KVCache* cache = nullptr, Caller = Caller::here()) const;

  /// State: c_attn.weight, c_attn.bias, c_proj.weight, c_proj.bias.
  void visit(Visitor& v) { v("c_attn", c_attn), v("c_proj", c_proj), v("resid_dropout", resid_dropout), v("training", training); }

  Linear c_attn;          ///< n_embd to 3 n_embd: queries, keys, values
  Linear c_proj;          ///< of the joined heads
  Dropout resid_dropout;  ///< of the result
  Index n_head;           ///< as configured
  double attn_dropout;    ///< of the weights, in training
  bool training = true;   ///< set by `train`
};

/// c_proj(gelu(c_fc(x))), four times as wide inside, with the tanh form of gelu.
class GPTMLP {
 public:
  explicit GPTMLP(const GPTConfig&);  ///< Errors as GPT

  Tensor operator()(const Tensor& x, Caller = Caller::here()) const;  ///< x (..., n_embd) -> the same shape

  /// State: c_fc.weight, c_fc.bias, c_proj.weight, c_proj.bias.
  void visit(Visitor& v) { v("c_fc", c_fc), v("c_proj", c_proj), v("dropout", dropout); }

  Linear c_fc;      ///< n_embd to 4 n_embd
  Linear c_proj;    ///< and back
  Dropout dropout;  ///< of the result
};

/// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class GPTBlock {
 public:
  explicit GPTBlock(const GPTConfig&);  ///< Errors as GPT

  /// x (B, T, n_embd) -> the same shape; the cache is that of `attn`.
  Tensor operator()(const Tensor& x, KVCache* cache = nullptr, Caller = Caller::here()) const;

  /// State: that of the four members, after "ln_1." and so on.
  void visit(Visitor& v) { v("ln_1", ln_1), v("attn", attn), v("ln_2", ln_2), v("mlp", mlp); }

  LayerNorm ln_1;     ///< before attention
  GPTAttention attn;  ///< the first branch
  LayerNorm ln_2;     ///< before the feed-forward part
  GPTMLP mlp;         ///< the second branch
};

/// Everything below the head: ln_f(h[n-1](... h[0](wte[idx] + wpe[0..T)))).
class GPTTransformer {
 public:
  explicit GPTTransformer(const GPTConfig&);  ///< Errors as GPT

  /// idx (B, T) -> (B, T, n_embd); as GPT in all else.
  Tensor operator()(const Tensor& idx, std::vector<KVCache>* caches = nullptr, Caller = Caller::here()) const;

  /// State: wte.weight, wpe.weight, that of each block after "h.0." and so on, ln_f.weight, ln_f.bias.
  void visit(Visitor& v) { v("wte", wte), v("wpe", wpe), v("drop", drop), v("h", h), v("ln_f", ln_f); }

  Embedding wte;            ///< of tokens, (vocab_size, n_embd)
  Embedding wpe;            ///< of positions, (block_size, n_embd)
  Dropout drop;             ///< of their sum
  std::vector<GPTBlock> h;  ///< n_layer blocks
  LayerNorm ln_f;           ///< after the last one
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
  explicit GPT(const GPTConfig& = {});  ///< draws its parameters from the process's random numbers

  /// With caches (one for each layer; an empty vector gets them) idx holds the positions after those in the caches, which it joins; needs NoGrad. An
  /// error leaves the caches as they were. ShapeError for an idx of another rank, with both numbers for more positions than block_size, and for
  /// caches of another model; IndexError for a token outside of [0, vocab_size), DTypeError unless idx is i64.
  Tensor operator()(const Tensor& idx, std::vector<KVCache>* caches = nullptr, Caller = Caller::here()) const;

  /// State: that of the transformer after "transformer.", and lm_head.weight.
  void visit(Visitor& v) { v("transformer", transformer), v("lm_head", lm_head); }

  const GPTConfig& config() const { return config_; }  ///< as given

  GPTTransformer transformer;  ///< everything below the head
  Linear lm_head;              ///< without bias; its weight is transformer.wte's

 private:
  GPTConfig config_;
};

}  // namespace heed::nn
