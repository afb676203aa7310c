#include <cmath>

#include "../autograd/ops.h"
#include "../tensor/raise.h"
#include "../tensor/random.h"
#include "dropout.h"
#include "embedding.h"
#include "init.h"
#include "layer_norm.h"
#include "linear.h"
#include "self_attention.h"

namespace heed {
namespace detail {

Tensor uniform_parameter(const OpName& op, const Dims& shape, double bound) {
  checked_numel(op, shape, sizeof(float));
  return Tensor((2 * rand(shape) - 1) * bound).requires_grad_();
}

Tensor normal_parameter(const OpName& op, const Dims& shape, double deviation) {
  checked_numel(op, shape, sizeof(float));
  return Tensor(randn(shape) * deviation).requires_grad_();
}

Tensor constant_parameter(const OpName& op, const Dims& shape, double value) {
  checked_numel(op, shape, sizeof(float));
  return full(shape, value).requires_grad_();
}

double inverse_sqrt(Index n) { return n > 0 ? 1 / std::sqrt(static_cast<double>(n)) : 0; }

}  // namespace detail

namespace nn {

Linear::Linear(Index in, Index out, bool with_bias)
    : weight(detail::uniform_parameter("Linear", {out, in}, detail::inverse_sqrt(in))),
      bias(with_bias ? detail::uniform_parameter("Linear", {out}, detail::inverse_sqrt(in)) : Tensor()) {}

Tensor Linear::operator()(const Tensor& x, Caller caller) const { return linear(x, weight, bias, caller); }

Embedding::Embedding(Index n, Index dim) : weight(detail::normal_parameter("Embedding", {n, dim})) {}

Tensor Embedding::operator()(const Tensor& ids, Caller caller) const { return embedding(ids, weight, caller); }

LayerNorm::LayerNorm(const Dims& normalized_shape, double epsilon)
    : weight(detail::constant_parameter("LayerNorm", normalized_shape, 1)),
      bias(detail::constant_parameter("LayerNorm", normalized_shape, 0)),
      eps(epsilon) {
  if (!(eps >= 0 && std::isfinite(eps))) detail::raise<Error>("LayerNorm: eps is negative or not finite: {}", eps);
}

Tensor LayerNorm::operator()(const Tensor& x, Caller caller) const { return layer_norm(x, weight.shape(), weight, bias, eps, caller); }

Dropout::Dropout(double probability) : p(probability) {
  if (!(p >= 0 && p <= 1)) detail::raise<Error>("Dropout: p is not in [0, 1]: {}", p);
}

Tensor Dropout::operator()(const Tensor& x, Caller caller) const { return dropout(x, p, training, caller); }

namespace {

Tensor projection(Init init, const Dims& shape) {
  constexpr const char* op = "SingleHeadSelfAttention";
  detail::checked_numel(op, shape, sizeof(float));
  return init == Init::lesson ? detail::normal_parameter(op, shape)
                              : detail::uniform_parameter(op, shape, std::sqrt(6.0) * detail::inverse_sqrt(shape[0] + shape[1]));
}

}  // namespace

SingleHeadSelfAttention::SingleHeadSelfAttention(Index d_model, Index d_head, Init init)
    : W_q(projection(init, {d_model, d_head})), W_k(projection(init, {d_model, d_head})), W_v(projection(init, {d_model, d_head})) {}

Attention SingleHeadSelfAttention::attend(const Tensor& x, const AttentionOptions& options, Caller caller) const {
  const OpName op{"SingleHeadSelfAttention", caller};
  if (x.impl(op).layout.shape.size() < 2 || x.size(-1) != W_q.size(0))
    detail::raise<ShapeError>(op, "wants x (..., T, d_model) with d_model={}: x {}", W_q.size(0), x.shape());
  return scaled_dot_product_attention(matmul(x, W_q, caller), matmul(x, W_k, caller), matmul(x, W_v, caller), options, caller);
}

}  // namespace nn
}  // namespace heed
