#include "../../tensor/kernels/lookup.h"

#include "../../tensor/kernels/dropout.h"
#include "../../tensor/random.h"
#include "forward.h"

namespace heed {
namespace {

/// Row-major ids, every one of them in [0, n).
Tensor checked_ids(const OpName& op, const Tensor& ids, Index n, const char* of_what) {
  detail::require_dtype(op, ids, i64);
  const Tensor flat = detail::contiguous_data(ids);
  const Index* p = flat.data<Index>();
  for (Index i = 0; i < flat.numel(); ++i)
    if (p[i] < 0 || p[i] >= n) detail::raise<IndexError>(op, "id {} is out of range for {} of {}", p[i], of_what, n);
  return flat;
}

kernels::PickSizes pick_sizes(const Dims& x, const Dims& index, std::size_t dim) {
  kernels::PickSizes s{1, x[dim], index[dim], 1};
  for (std::size_t i = 0; i < x.size(); ++i)
    if (i != dim) (i < dim ? s.outer : s.inner) *= index[i];
  return s;
}

/// 0 or 1 / (1 - p): a function of the generator's state and the element's place, so that nothing depends on threads.
Tensor dropout_scale(const Dims& shape, double p, const RngState& from, DType dtype) {
  if (p == 1) return zeros(shape, dtype);
  Tensor scale = detail::make_empty(shape, dtype);
  detail::dispatch_float(dtype, [&]<class T>() {
    kernels::dropout_scale<T>(scale.mutable_data<T>(), from.seed, from.offset, scale.numel(), p, static_cast<T>(1 / (1 - p)));
  });
  return scale;
}

}  // namespace

Tensor embedding(const Tensor& ids, const Tensor& weight, Caller caller) {
  const OpName op{"embedding", caller};
  if (weight.impl(op).layout.shape.size() != 2) detail::raise<ShapeError>(op, "wants a table of (n, d): shape {}", weight.shape());
  const Index n = weight.size(0), width = weight.size(1);
  const Tensor rows = checked_ids(op, ids, n, "a table"), table = detail::contiguous_data(weight);
  Tensor y = detail::make_empty(detail::with_last(op, ids.shape(), width), weight.dtype(), op);
  detail::dispatch(weight.dtype(),
                   [&]<class T>() { kernels::take_rows<T>(y.mutable_data<T>(), table.data<T>(), rows.data<Index>(), rows.numel(), width); });
  return record(op, std::move(y), weight,
                [ids = saved(ids), n](const BackwardContext&, const Tensor& dy) -> Grads { return {detail::embedding_backward(dy, ids.get(), n)}; });
}

Tensor detail::embedding_backward(const Tensor& x, const Tensor& ids, Index n, Caller caller) {
  const OpName op{"embedding_backward", caller};
  require_float(op, x);
  const Index width = x.size(-1);
  const Tensor rows = contiguous_data(ids), from = contiguous_data(x);
  Tensor y = zeros({n, width}, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() { kernels::add_rows<T>(y.mutable_data<T>(), from.data<T>(), rows.data<Index>(), rows.numel(), width); });
  return record(op, std::move(y), x, [ids = saved(ids)](const BackwardContext&, const Tensor& dy) -> Grads { return {embedding(ids.get(), dy)}; });
}

Tensor gather(const Tensor& x, Index dim, const Tensor& index, Caller caller) {
  const OpName op{"gather", caller};
  const std::size_t d = detail::wrap_dim(op, dim, x.impl(op).layout.shape);
  if (index.impl(op).layout.shape.size() != x.shape().size())
    detail::raise<ShapeError>(op, "the index {} has another rank than {}", index.shape(), x.shape());
  if (x.dim() == 0) detail::raise<ShapeError>(op, "a 0-d tensor has no dim to gather along");
  Tensor within = x.detach();
  for (std::size_t i = 0; i < x.shape().size(); ++i) {
    if (i == d) continue;
    if (index.shape()[i] > x.shape()[i]) detail::raise<ShapeError>(op, "the index {} is larger than {} in dim {}", index.shape(), x.shape(), i);
    if (index.shape()[i] < x.shape()[i]) within = detail::make_view(within, detail::slice(op, within.ref()->layout, i, 0, index.shape()[i], 1));
  }
  const Tensor at = checked_ids(op, index, x.shape()[d], "a dim"), from = detail::contiguous_data(within);
  Tensor y = detail::make_empty(index.shape(), x.dtype(), op);
  const kernels::PickSizes sizes = pick_sizes(x.shape(), index.shape(), d);
  detail::dispatch(x.dtype(), [&]<class T>() { kernels::pick<T>(y.mutable_data<T>(), from.data<T>(), at.data<Index>(), sizes); });
  return record(op, std::move(y), x, [index = saved(index), shape = x.shape(), d](const BackwardContext&, const Tensor& dy) -> Grads {
    return {detail::scatter_add(dy, shape, static_cast<Index>(d), index.get())};
  });
}

Tensor detail::scatter_add(const Tensor& x, const Dims& shape, Index dim, const Tensor& index, Caller caller) {
  const OpName op{"scatter_add", caller};
  require_float(op, x);
  const std::size_t d = static_cast<std::size_t>(dim);
  // Where the index covers a part of the other dims, the sum is made for that part and then put into place.
  Dims covered = index.shape();
  covered[d] = shape[d];
  const Tensor at = contiguous_data(index), from = contiguous_data(x);
  Tensor part = zeros(covered, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    kernels::add_picked<T>(part.mutable_data<T>(), from.data<T>(), at.data<Index>(), pick_sizes(covered, index.shape(), d));
  });
  Tensor y = part;
  if (covered != shape) {
    y = zeros(shape, x.dtype());
    dispatch_float(x.dtype(), [&]<class T>() { kernels::copy<T, T>(y.mutable_data<T>(), y.strides(), {part.data<T>(), part.strides()}, covered); });
  }
  return record(op, y, x, [index = saved(index), dim](const BackwardContext&, const Tensor& dy) -> Grads { return {gather(dy, dim, index.get())}; });
}

Tensor dropout(const Tensor& x, double p, bool training, Caller caller) {
  const OpName op{"dropout", caller};
  if (!(p >= 0 && p <= 1)) detail::raise<Error>(op, "p is not in [0, 1]: {}", p);
  detail::require_float(op, x);
  if (p == 0 || !training) return x;
  return detail::dropout_from(x, p, p == 1 ? RngState{} : detail::reserve_random(static_cast<std::uint64_t>(x.numel())), caller);
}

Tensor detail::dropout_from(const Tensor& x, double p, const RngState& state, Caller caller) {
  const OpName op{"dropout", caller};
  const TensorImpl& in = x.impl(op);
  return drop(op, x, dropout_scale(in.layout.shape, p, state, in.dtype));
}

}  // namespace heed
