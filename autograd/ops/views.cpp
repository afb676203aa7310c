#include "forward.h"

namespace heed {

using detail::make_view;

// A view's backward is the opposite view of the gradient.

Tensor reshape(const Tensor& x, const Dims& shape, Caller caller) {
  const OpName op{"reshape", caller};
  const Dims to = detail::infer_shape(op, shape, x.impl(op).numel);
  const auto layout = detail::reshape(x.ref()->layout, to);
  Tensor y = layout ? make_view(x, *layout) : [&] {
    const Tensor copy = detail::contiguous_data(x);
    return make_view(copy, {to, detail::row_major_strides(to), 0});
  }();
  return record(op, std::move(y), x, [from = x.shape()](const BackwardContext&, const Tensor& dy) -> Grads { return {reshape(dy, from)}; });
}

Tensor flatten(const Tensor& x, Index start, Index end, Caller caller) {
  const OpName op{"flatten", caller};
  const Dims& from = x.impl(op).layout.shape;
  const std::size_t first = detail::wrap_dim(op, start, from), last = detail::wrap_dim(op, end, from);
  if (first > last) detail::raise<ShapeError>(op, "start dim {} comes after end dim {}", start, end);
  Dims shape;
  Index merged = 1;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (i < first || i > last)
      shape.push_back(from[i]);
    else
      merged *= from[i];
    if (i == last) shape.push_back(merged);
  }
  return reshape(x, from.empty() ? Dims{1} : shape, caller);
}

Tensor transpose(const Tensor& x, Index a, Index b, Caller caller) {
  const OpName op{"transpose", caller};
  const detail::Layout& layout = x.impl(op).layout;
  const std::size_t i = detail::wrap_dim(op, a, layout.shape), j = detail::wrap_dim(op, b, layout.shape);
  return record(op, make_view(x, detail::transpose(layout, i, j)), x,
                [a, b](const BackwardContext&, const Tensor& dy) -> Grads { return {transpose(dy, a, b)}; });
}

Tensor permute(const Tensor& x, const Dims& order, Caller caller) {
  const OpName op{"permute", caller};
  Tensor y = make_view(x, detail::permute(op, x.impl(op).layout, order));
  Dims back = order;
  for (std::size_t i = 0; i < y.shape().size(); ++i) back[detail::wrap_dim(op, order[i], x.shape())] = static_cast<Index>(i);
  return record(op, std::move(y), x, [back](const BackwardContext&, const Tensor& dy) -> Grads { return {permute(dy, back)}; });
}

Tensor squeeze(const Tensor& x, std::optional<Index> dim, Caller caller) {
  const OpName op{"squeeze", caller};
  detail::Layout layout = x.impl(op).layout;
  const std::size_t only = dim ? detail::wrap_dim(op, *dim, x.shape()) : 0;
  for (std::size_t i = layout.shape.size(); i-- > 0;)
    if (layout.shape[i] == 1 && (!dim || i == only)) layout = detail::squeeze(layout, i);
  return record(op, make_view(x, layout), x, [from = x.shape()](const BackwardContext&, const Tensor& dy) -> Grads { return {reshape(dy, from)}; });
}

Tensor unsqueeze(const Tensor& x, Index dim, Caller caller) {
  const OpName op{"unsqueeze", caller};
  const Dims longer = detail::with_last(op, x.impl(op).layout.shape, 1);
  const std::size_t at = detail::wrap_dim(op, dim, longer);
  return record(op, make_view(x, detail::unsqueeze(x.ref()->layout, at)), x,
                [from = x.shape()](const BackwardContext&, const Tensor& dy) -> Grads { return {reshape(dy, from)}; });
}

Tensor expand(const Tensor& x, const Dims& shape, Caller caller) {
  const OpName op{"expand", caller};
  detail::Layout layout = detail::expand(op, x.impl(op).layout, shape);
  detail::checked_numel(op, layout.shape, detail::size_of(x.dtype()));
  // The engine sums the gradient back to x's shape, as for every broadcast input.
  return record(op, make_view(x, layout), x, [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy}; });
}

Tensor slice(const Tensor& x, Index dim, Index start, Index end, Index step, Caller caller) {
  const OpName op{"slice", caller};
  const std::size_t d = detail::wrap_dim(op, dim, x.impl(op).layout.shape);
  detail::Layout layout = detail::slice(op, x.ref()->layout, d, start, end, step);
  const Index size = x.shape()[d], first = std::clamp<Index>(start < 0 ? start + size : start, 0, size);
  return record(op, make_view(x, layout), x, [shape = x.shape(), d, first, step](const BackwardContext&, const Tensor& dy) -> Grads {
    return {detail::slice_backward(dy, shape, static_cast<Index>(d), first, step)};
  });
}

Tensor detail::slice_backward(const Tensor& x, const Dims& shape, Index dim, Index start, Index step, Caller caller) {
  const OpName op{"slice_backward", caller};
  Tensor y = zeros(shape, x.impl(op).dtype);
  const Index picked = x.size(dim), end = picked == 0 ? start : start + step * (picked - 1) + 1;
  const Layout at = slice(op, y.ref()->layout, static_cast<std::size_t>(dim), start, end, step);
  dispatch(x.dtype(), [&]<class T>() { kernels::copy<T, T>(y.mutable_data<T>() + at.offset, at.strides, {x.data<T>(), x.strides()}, x.shape()); });
  return record(op, std::move(y), x,
                [dim, start, end, step](const BackwardContext&, const Tensor& dy) -> Grads { return {heed::slice(dy, dim, start, end, step)}; });
}

Tensor select(const Tensor& x, Index dim, Index i, Caller caller) {
  const OpName op{"select", caller};
  const std::size_t d = detail::wrap_dim(op, dim, x.impl(op).layout.shape);
  detail::Layout layout = detail::select(op, x.ref()->layout, d, i);
  const Index at = i < 0 ? i + x.shape()[d] : i;
  return record(op, make_view(x, layout), x, [shape = x.shape(), d, at](const BackwardContext&, const Tensor& dy) -> Grads {
    return {detail::slice_backward(unsqueeze(dy, static_cast<Index>(d)), shape, static_cast<Index>(d), at, 1)};
  });
}

Tensor Tensor::operator[](At at) const { return select(*this, 0, at.i, at.caller); }

Tensor detail::alias(const Tensor& x, Caller caller) {
  const OpName op{"alias", caller};
  return record(op, make_view(x, x.impl(op).layout), x, [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy}; });
}

Tensor Tensor::clone(Caller caller) const {
  const OpName op{"clone", caller};
  const detail::TensorImpl& from = impl(op);
  Tensor y = detail::make_empty(from.layout.shape, from.dtype, op);
  detail::dispatch(dtype(), [&]<class T>() { kernels::copy<T, T>(y.mutable_data<T>(), y.strides(), {data<T>(), strides()}, shape()); });
  return record(op, std::move(y), *this, [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy}; });
}

Tensor Tensor::contiguous(Caller caller) const { return impl(OpName("contiguous", caller)).contiguous ? *this : clone(caller); }

Tensor Tensor::to(DType wanted, Caller caller) const {
  const OpName op{"to", caller};
  const DType from = impl(op).dtype;
  if (from == wanted) return *this;
  Tensor y = detail::make_empty(shape(), wanted, op);
  detail::dispatch(from, [&]<class F>() {
    detail::dispatch(wanted, [&]<class T>() { kernels::copy<T, F>(y.mutable_data<T>(), y.strides(), {data<F>(), strides()}, shape()); });
  });
  if (!detail::is_float(wanted)) {  // a step function: nothing flows back
    const NoGrad off;
    return record(op, std::move(y), *this, [](const BackwardContext&, const Tensor&) -> Grads { return {Tensor()}; });
  }
  return record(op, std::move(y), *this, [from](const BackwardContext&, const Tensor& dy) -> Grads { return {dy.to(from)}; });
}

namespace {

void require_writable(const OpName& op, const Tensor& t) {
  if (!t.is_leaf()) detail::raise<GradError>(op, "only leaves are written in place, this is the output of {}", detail::node_of(t)->name);
  if (t.requires_grad() && detail::thread_state.grad_enabled)
    detail::raise<GradError>(op, "a leaf that requires a gradient is written under NoGrad only");
  if (detail::overlaps_itself(t.ref()->layout)) detail::raise<ShapeError>(op, "elements share memory: shape {}, strides {}", t.shape(), t.strides());
}

}  // namespace

Tensor& Tensor::copy_(const Tensor& source) {
  impl("copy_"), source.impl("copy_");
  require_writable("copy_", *this);
  if (source.dtype() != dtype() && !(detail::is_float(source.dtype()) && detail::is_float(dtype())))
    detail::raise<DTypeError>("copy_: dtypes differ: {} into {}", source.dtype(), dtype());
  if (!detail::broadcasts_to(source.shape(), shape())) detail::raise<ShapeError>("copy_: {} does not broadcast to {}", source.shape(), shape());
  if (source.requires_grad() && detail::thread_state.grad_enabled)
    detail::raise<GradError>("copy_: the history of the source would be lost: detach() it, or copy under NoGrad");
  // A source that shares storage may be overwritten while it is read.
  const Tensor from = source.ref()->storage == impl_->storage ? source.detach().clone() : source;
  detail::dispatch(dtype(), [&]<class T>() {
    detail::dispatch(from.dtype(), [&]<class F>() { kernels::copy<T, F>(mutable_data<T>(), strides(), detail::over<F>(from, shape()), shape()); });
  });
  return *this;
}

Tensor& Tensor::fill_(const detail::Number& value) {
  impl("fill_");
  require_writable("fill_", *this);
  const NoGrad off;
  return copy_(full({}, value, dtype()));
}

}  // namespace heed
