#include "gpt.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "../autograd/attention.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"
#include "init.h"

namespace heed::nn {
namespace {

constexpr const char* name = "GPT";
constexpr double deviation = 0.02;

/// Checked here so that members can be made from sizes that make sense.
const GPTConfig& checked(const GPTConfig& c) {
  const std::pair<const char*, Index> sizes[] = {
      {"vocab_size", c.vocab_size}, {"block_size", c.block_size}, {"n_head", c.n_head}, {"n_embd", c.n_embd}};
  for (const auto& [size_name, size] : sizes)
    if (size < 1) detail::raise<ShapeError>("{}: {} is below 1: {}", name, size_name, size);
  if (c.n_layer < 0) detail::raise<ShapeError>("{}: n_layer is negative: {}", name, c.n_layer);
  if (c.n_embd % c.n_head != 0) detail::raise<ShapeError>("{}: n_head does not divide n_embd: n_embd={}, n_head={}", name, c.n_embd, c.n_head);
  if (!(c.dropout >= 0 && c.dropout <= 1)) detail::raise<Error>("{}: dropout is not in [0, 1]: {}", name, c.dropout);
  return c;
}

Linear projection(Index in, Index out, double std) {
  Linear made(0, 0);
  made.weight = detail::normal_parameter(name, {out, in}, std);
  made.bias = detail::constant_parameter(name, {out}, 0);
  return made;
}

/// Each block adds two of these to the residual stream, whose variance is to stay the same whatever the depth.
Linear residual_projection(Index in, const GPTConfig& c) { return projection(in, c.n_embd, deviation * detail::inverse_sqrt(2 * c.n_layer)); }

Embedding table(Index n, Index dim) {
  Embedding made(0, 0);
  made.weight = detail::normal_parameter(name, {n, dim}, deviation);
  return made;
}

}  // namespace

GPTAttention::GPTAttention(const GPTConfig& c)
    : c_attn(projection(c.n_embd, 3 * c.n_embd, deviation)),
      c_proj(residual_projection(c.n_embd, c)),
      resid_dropout(c.dropout),
      n_head(c.n_head),
      attn_dropout(c.dropout) {}

Tensor GPTAttention::operator()(const Tensor& x, KVCache* cache, Caller caller) const {
  const Index B = x.size(0), T = x.size(1), C = x.size(2);
  std::vector<Tensor> heads = split(c_attn(x, caller), C, -1, caller);
  for (Tensor& t : heads) t = transpose(reshape(t, {B, T, n_head, C / n_head}, caller), 1, 2, caller);
  AttentionOptions options{.mask = Mask::causal(), .dropout_p = attn_dropout, .training = training, .need_weights = false};
  if (cache) {
    options.mask = Mask::causal(cache->length());
    std::tie(heads[1], heads[2]) = cache->append(heads[1], heads[2], caller);
  }
  const Tensor y = scaled_dot_product_attention(heads[0], heads[1], heads[2], options, caller).output;
  return resid_dropout(c_proj(reshape(transpose(y, 1, 2, caller), {B, T, C}, caller), caller), caller);
}

GPTMLP::GPTMLP(const GPTConfig& c)
    : c_fc(projection(c.n_embd, 4 * c.n_embd, deviation)), c_proj(residual_projection(4 * c.n_embd, c)), dropout(c.dropout) {}

Tensor GPTMLP::operator()(const Tensor& x, Caller caller) const { return dropout(c_proj(gelu(c_fc(x, caller), Gelu::tanh, caller), caller), caller); }

GPTBlock::GPTBlock(const GPTConfig& c) : ln_1({c.n_embd}, c.layer_norm_epsilon), attn(c), ln_2({c.n_embd}, c.layer_norm_epsilon), mlp(c) {}

Tensor GPTBlock::operator()(const Tensor& x, KVCache* cache, Caller caller) const {
  const Tensor y = x + Operand(attn(ln_1(x, caller), cache, caller), caller);
  return y + Operand(mlp(ln_2(y, caller), caller), caller);
}

GPTTransformer::GPTTransformer(const GPTConfig& c)
    : wte(table(c.vocab_size, c.n_embd)), wpe(table(c.block_size, c.n_embd)), drop(c.dropout), ln_f({c.n_embd}, c.layer_norm_epsilon) {
  for (Index i = 0; i < c.n_layer; ++i) h.emplace_back(c);
}

Tensor GPTTransformer::operator()(const Tensor& idx, std::vector<KVCache>* caches, Caller caller) const {
  const OpName op{name, caller};
  if (idx.impl(op).layout.shape.size() != 2) detail::raise<ShapeError>(op, "wants idx of (B, T): shape {}", idx.shape());
  if (caches) {
    detail::require_no_recording(op);
    if (caches->empty()) caches->resize(h.size());
    if (caches->size() != h.size()) detail::raise<ShapeError>(op, "wants a cache for each layer: {} caches, n_layer={}", caches->size(), h.size());
    for (const KVCache& cache : *caches)
      if (cache.length() != caches->front().length())
        detail::raise<ShapeError>(op, "the caches of its layers are of one length: {} and {}", caches->front().length(), cache.length());
  }
  const Index T = idx.size(1), past = caches && !caches->empty() ? caches->front().length() : 0, block_size = wpe.weight.size(0);
  if (past + T > block_size)
    detail::raise<ShapeError>(op, "more positions than block_size: T={}{}, block_size={}", T,
                              past > 0 ? fmt::format(" after {} in the caches", past) : "", block_size);
  const Tensor tokens = wte(idx, caller);
  Tensor x = drop(tokens + Operand(slice(wpe.weight, 0, past, past + T, 1, caller), caller), caller);
  try {
    for (std::size_t i = 0; i < h.size(); ++i) x = h[i](x, caches ? &(*caches)[i] : nullptr, caller);
    return ln_f(x, caller);
  } catch (...) {
    if (caches)
      for (KVCache& cache : *caches) past > 0 ? cache.truncate(std::min(past, cache.length())) : cache.clear();
    throw;
  }
}

GPT::GPT(const GPTConfig& config) : transformer(checked(config)), lm_head(0, 0, false), config_(config) { lm_head.weight = transformer.wte.weight; }

Tensor GPT::operator()(const Tensor& idx, std::vector<KVCache>* caches, Caller caller) const {
  return lm_head(transformer(idx, caches, caller), caller);
}

}  // namespace heed::nn
