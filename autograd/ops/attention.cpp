#include "../attention.h"

#include <cmath>
#include <limits>

#include "forward.h"

namespace heed {
namespace {

constexpr const char* name = "scaled_dot_product_attention";

/// Checks everything before anything is computed; the shape of the scores, (..., Tq, Tk).
Dims scores_shape(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  detail::require_float(name, q);
  for (const Tensor* t : {&k, &v}) detail::require_same_dtype(name, q, *t);
  if (q.dim() < 2 || k.dim() < 2 || v.dim() < 2)
    detail::raise<ShapeError>("{}: wants (..., T, d): Q {}, K {}, V {}", name, q.shape(), k.shape(), v.shape());
  if (q.size(-1) != k.size(-1)) detail::raise<ShapeError>("{}: query and key sizes differ: Q d_k={}, K d_k={}", name, q.size(-1), k.size(-1));
  if (k.size(-2) != v.size(-2)) detail::raise<ShapeError>("{}: keys and values differ in number: K Tk={}, V Tk={}", name, k.size(-2), v.size(-2));
  if (!(options.dropout_p >= 0 && options.dropout_p <= 1)) detail::raise<Error>("{}: dropout_p is not in [0, 1]: {}", name, options.dropout_p);
  const auto batch = [](const Tensor& t) {
    Dims d = t.shape();
    d.pop_back(), d.pop_back();
    return d;
  };
  detail::broadcast_shapes(name, detail::broadcast_shapes(name, batch(q), batch(k)), batch(v));
  Dims shape = detail::broadcast_shapes(name, batch(q), batch(k));
  shape.push_back(q.size(-2)), shape.push_back(k.size(-2));
  detail::check_mask(name, options.mask, shape);
  return shape;
}

Attention composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, double scale, const Dims& shape,
                   Caller caller) {
  const detail::DenseMask mask = detail::dense_mask(name, options.mask, shape, q.dtype(), caller);
  Tensor scores = matmul(q * Operand(scale, caller), transpose(k, -2, -1, caller), caller);
  if (mask.added.defined()) scores = scores + Operand(mask.added, caller);
  if (mask.allowed.defined()) scores = masked_fill(scores, !Located(mask.allowed, caller), Operand(-std::numeric_limits<double>::infinity(), caller));
  const Tensor weights = detail::softmax_or_zero(scores, caller);
  const Tensor kept = dropout(weights, options.dropout_p, options.training, caller);
  return {matmul(kept, v, caller), options.need_weights ? weights : Tensor()};
}

}  // namespace

Attention scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, Caller caller) {
  const Dims shape = scores_shape(q, k, v, options);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<Index>(q.size(-1), 1))));
  return composed(q, k, v, options, scale, shape, caller);
}

}  // namespace heed
