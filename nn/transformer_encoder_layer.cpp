#include "transformer_encoder_layer.h"

#include "../autograd/ops.h"

namespace heed::nn {

TransformerEncoderLayer::TransformerEncoderLayer(Index d_model, Index nhead, const TransformerEncoderLayerOptions& o)
    : self_attn(d_model, nhead, {.dropout = o.dropout}),
      linear1(d_model, o.dim_feedforward),
      linear2(o.dim_feedforward, d_model),
      norm1({d_model}, o.layer_norm_eps),
      norm2({d_model}, o.layer_norm_eps),
      dropout(o.dropout),
      dropout1(o.dropout),
      dropout2(o.dropout),
      activation(o.activation),
      norm_first(o.norm_first) {}

Tensor TransformerEncoderLayer::operator()(const Tensor& x, const Mask& mask, KVCache* cache, Caller caller) const {
  const auto attention = [&](const Tensor& t) {
    return dropout1(self_attn(t, AttentionOptions{.mask = mask, .need_weights = false}, cache, caller).output, caller);
  };
  const auto feed_forward = [&](const Tensor& t) {
    const Tensor wide = linear1(t, caller);
    const Tensor active = activation == Activation::relu ? relu(wide, caller) : gelu(wide, Gelu::erf, caller);
    return dropout2(linear2(dropout(active, caller), caller), caller);
  };
  if (norm_first) {
    const Tensor y = x + Operand(attention(norm1(x, caller)), caller);
    return y + Operand(feed_forward(norm2(y, caller)), caller);
  }
  const Tensor y = norm1(x + Operand(attention(x), caller), caller);
  return norm2(y + Operand(feed_forward(y), caller), caller);
}

}  // namespace heed::nn
