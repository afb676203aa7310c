#include "multi_head_attention.h"

#include <cmath>
#include <tuple>
#include <vector>

#include "../autograd/ops.h"
#include "../tensor/raise.h"
#include "init.h"

namespace heed::nn {
namespace {

constexpr const char* name = "MultiHeadAttention";

/// Checked here so that members can be made from sizes that divide.
Index checked_embed_dim(Index embed_dim, Index num_heads) {
  if (embed_dim < 0 || num_heads < 1 || embed_dim % num_heads != 0)
    detail::raise<ShapeError>("{}: num_heads does not divide embed_dim: embed_dim={}, num_heads={}", name, embed_dim, num_heads);
  return embed_dim;
}

Tensor xavier(Index out, Index in) {
  const Dims shape{out, in};
  detail::checked_numel(name, shape, sizeof(float));
  return detail::uniform_parameter(name, shape, std::sqrt(6.0) * detail::inverse_sqrt(out + in));
}

void check_tensors(const OpName& op, const Mask& mask) {
  for (const auto* tensors : {&mask.keeps(), &mask.biases()})
    for (const Tensor& t : *tensors)
      if (t.dim() == 3 || t.dim() > 4)
        detail::raise<ShapeError>(
            op, "a mask {} of rank {}, where batch and heads could be confused: wants (Tq, Tk), or rank 4 such as (B, 1, Tq, Tk) or (1, H, Tq, Tk)",
            t.shape(), t.dim());
}

/// The mask over scores (B, num_kv_heads, num_heads / num_kv_heads, Tq, Tk).
Mask grouped(const Mask& mask, Index kv_heads, Index queries_each, Caller caller) {
  const auto regroup = [&](const Tensor& t) {
    if (t.dim() < 4) return t;
    Dims shape = t.shape();
    const bool of_heads = shape[1] == kv_heads * queries_each;
    if (!of_heads && shape[1] != 1)
      detail::raise<ShapeError>(OpName(name, caller), "the mask {} does not broadcast to {} heads", shape, kv_heads * queries_each);
    shape[1] = of_heads ? kv_heads : 1;
    shape.insert(2, of_heads ? queries_each : 1);
    return reshape(t, shape, caller);
  };
  Mask out;
  if (mask.is_causal()) out = Mask::causal();
  if (mask.window()) out = out & Mask::window(*mask.window());
  if (mask.offset()) out = out.at(*mask.offset());
  if (!mask.key_lengths().empty()) out = out & Mask::lengths(mask.key_lengths());
  for (const Tensor& t : mask.keeps()) out = out & Mask::keep(regroup(t));
  for (const Tensor& t : mask.biases()) out = out & Mask::bias(regroup(t));
  return out;
}

/// Keys and values of one head for each query head, copied.
Tensor repeated(const Tensor& t, Index times, Caller caller) {
  const Index B = t.size(0), heads = t.size(1), T = t.size(2), d = t.size(3);
  return reshape(expand(unsqueeze(t, 2, caller), {B, heads, times, T, d}, caller), {B, heads * times, T, d}, caller);
}

/// Puts a cache back to where it was unless told that all went well.
class Undo {
 public:
  explicit Undo(KVCache* cache) : cache_(cache), length_(cache ? cache->length() : 0) {}
  ~Undo() {
    if (!cache_) return;
    if (length_ == 0)
      cache_->clear();
    else
      cache_->truncate(length_);
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  void release() { cache_ = nullptr; }

 private:
  KVCache* cache_;
  Index length_;
};

}  // namespace

/// (B, heads, T, size of a head): views into the projections.
struct MultiHeadAttention::Heads {
  Tensor q, k, v;
};

MultiHeadAttention::MultiHeadAttention(Index embed_dim, Index num_heads, const MultiHeadAttentionOptions& options)
    : out_proj(checked_embed_dim(embed_dim, num_heads), embed_dim, options.bias),
      dropout(options.dropout),
      rotary(options.rotary),
      embed_dim_(embed_dim),
      num_heads_(num_heads),
      num_kv_heads_(options.num_kv_heads.value_or(num_heads)) {
  if (num_kv_heads_ < 1 || num_heads % num_kv_heads_ != 0)
    detail::raise<ShapeError>("{}: num_kv_heads does not divide num_heads: num_heads={}, num_kv_heads={}", name, num_heads, num_kv_heads_);
  if (!(dropout >= 0 && dropout <= 1)) detail::raise<Error>("{}: dropout is not in [0, 1]: {}", name, dropout);
  if (rotary && embed_dim / num_heads % 2 != 0)
    detail::raise<ShapeError>("{}: rotary positions want heads of an even size: embed_dim={}, num_heads={}", name, embed_dim, num_heads);
  const Index kdim = options.kdim.value_or(embed_dim), vdim = options.vdim.value_or(embed_dim), kv_size = embed_dim / num_heads * num_kv_heads_;
  if (kdim == embed_dim && vdim == embed_dim && num_kv_heads_ == num_heads) {
    in_proj_weight = xavier(3 * embed_dim, embed_dim);
  } else {
    q_proj_weight = xavier(embed_dim, embed_dim);
    k_proj_weight = xavier(kv_size, kdim);
    v_proj_weight = xavier(kv_size, vdim);
  }
  if (options.bias) {
    in_proj_bias = detail::constant_parameter(name, {embed_dim + 2 * kv_size}, 0);
    out_proj.bias = detail::constant_parameter(name, {embed_dim}, 0);
  }
}

MultiHeadAttention::Heads MultiHeadAttention::project(const Tensor& q, const Tensor& k, const Tensor& v, Caller caller) const {
  const Index head_dim = embed_dim_ / num_heads_, kv_size = head_dim * num_kv_heads_;
  const auto split_heads = [&](const Tensor& t, Index heads) {
    return transpose(reshape(t, {t.size(0), t.size(1), heads, head_dim}, caller), 1, 2, caller);
  };
  const bool packed = in_proj_weight.defined();
  std::vector<Tensor> parts;
  if (packed && embed_dim_ > 0 && q.id() == k.id() && k.id() == v.id()) {
    parts = split(linear(q, in_proj_weight, in_proj_bias, caller), embed_dim_, -1, caller);
  } else {
    const auto rows = [&](const Tensor& t, Index begin, Index size) { return t.defined() ? slice(t, 0, begin, begin + size, 1, caller) : t; };
    const auto weight = [&](Index i, const Tensor& own) { return packed ? rows(in_proj_weight, i * embed_dim_, embed_dim_) : own; };
    parts = {linear(q, weight(0, q_proj_weight), rows(in_proj_bias, 0, embed_dim_), caller),
             linear(k, weight(1, k_proj_weight), rows(in_proj_bias, embed_dim_, kv_size), caller),
             linear(v, weight(2, v_proj_weight), rows(in_proj_bias, embed_dim_ + kv_size, kv_size), caller)};
  }
  return {split_heads(parts[0], num_heads_), split_heads(parts[1], num_kv_heads_), split_heads(parts[2], num_kv_heads_)};
}

Attention MultiHeadAttention::attend_heads(const Heads& h, const AttentionOptions& options, Caller caller) const {
  const Index each = num_heads_ / num_kv_heads_;
  if (each == 1) return scaled_dot_product_attention(h.q, h.k, h.v, options, caller);
  // The slopes of alibi belong to the heads in one row; without it groups of queries share keys and values in place.
  if (options.mask.alibi_heads()) return scaled_dot_product_attention(h.q, repeated(h.k, each, caller), repeated(h.v, each, caller), options, caller);
  AttentionOptions inner = options;
  inner.mask = grouped(options.mask, num_kv_heads_, each, caller);
  const Index B = h.q.size(0), Tq = h.q.size(2), Tk = h.k.size(2), d = h.q.size(3);
  Attention a = scaled_dot_product_attention(reshape(h.q, {B, num_kv_heads_, each, Tq, d}, caller), unsqueeze(h.k, 2, caller),
                                             unsqueeze(h.v, 2, caller), inner, caller);
  a.output = reshape(a.output, {B, num_heads_, Tq, d}, caller);
  if (a.weights.defined()) a.weights = reshape(a.weights, {B, num_heads_, Tq, Tk}, caller);
  return a;
}

Attention MultiHeadAttention::attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& given, KVCache* cache,
                                     Caller caller) const {
  const OpName op{name, caller};
  if (cache) detail::require_no_recording(op);
  const Index kdim = in_proj_weight.defined() ? embed_dim_ : k_proj_weight.size(1),
              vdim = in_proj_weight.defined() ? embed_dim_ : v_proj_weight.size(1);
  for (const Tensor* t : {&q, &k, &v}) t->impl(op);
  const bool same_rank = q.dim() == k.dim() && k.dim() == v.dim() && (q.dim() == 2 || q.dim() == 3);
  if (!same_rank || q.size(-1) != embed_dim_ || k.size(-1) != kdim || v.size(-1) != vdim)
    detail::raise<ShapeError>(op, "wants (B, T, size) or (T, size) with embed_dim={}, kdim={}, vdim={}: q {}, k {}, v {}", embed_dim_, kdim, vdim,
                              q.shape(), k.shape(), v.shape());
  if (k.size(-2) != v.size(-2) || (q.dim() == 3 && (q.size(0) != k.size(0) || k.size(0) != v.size(0))))
    detail::raise<ShapeError>(op, "wants one batch, and as many keys as values: q {}, k {}, v {}", q.shape(), k.shape(), v.shape());
  check_tensors(op, given.mask);

  AttentionOptions options = given;
  if (options.dropout_p == 0) options.dropout_p = dropout, options.training = training;
  if (cache) options.mask = options.mask.at(cache->length(), caller);

  const bool one = q.dim() == 2;
  const auto batched = [&](const Tensor& t) { return one ? unsqueeze(t, 0, caller) : t; };
  const Tensor q3 = batched(q), k3 = k.id() == q.id() ? q3 : batched(k), v3 = v.id() == k.id() ? k3 : batched(v);
  Heads heads = project(q3, k3, v3, caller);
  if (rotary) {
    const auto turn = [&](const Tensor& t, Index from) {
      return nn::rotary(t, {.offset = detail::saturated_sum(rotary->offset, from), .base = rotary->base, .pairs = rotary->pairs}, caller);
    };
    heads.q = turn(heads.q, options.mask.offset().value_or(0)), heads.k = turn(heads.k, cache ? cache->length() : 0);
  }
  Undo undo(cache);
  if (cache) std::tie(heads.k, heads.v) = cache->append(heads.k, heads.v, caller);
  const Attention a = attend_heads(heads, options, caller);
  const Tensor joined = reshape(transpose(a.output, 1, 2, caller), {q3.size(0), q3.size(1), embed_dim_}, caller);
  Attention result{out_proj(joined, caller), a.weights};
  if (one) {
    result.output = squeeze(result.output, 0, caller);
    if (result.weights.defined()) result.weights = squeeze(result.weights, 0, caller);
  }
  undo.release();
  return result;
}

}  // namespace heed::nn
