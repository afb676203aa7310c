#include "forward.h"

namespace heed {

using detail::make_view;

// A view's backward is the opposite view of the gradient.

Tensor reshape(const Tensor& x, const Dims& shape, Caller caller) {
  const Dims to = detail::infer_shape("reshape", shape, x.numel());
  const auto layout = detail::reshape(x.ref()->layout, to);
  Tensor y = layout ? make_view(x, *layout) : [&] {
    const Tensor copy = detail::contiguous_data(x);
    return make_view(copy, {to, detail::row_major_strides(to), 0});
  }();
  return record({"reshape", caller}, std::move(y), x,
                [from = x.shape()](const BackwardContext&, const Tensor& dy) -> Grads { return {reshape(dy, from)}; });
}

Tensor flatten(const Tensor& x, Index start, Index end, Caller caller) {
  const Dims& from = x.shape();
  const std::size_t first = detail::wrap_dim("flatten", start, from), last = detail::wrap_dim("flatten", end, from);
  if (first > last) detail::raise<ShapeError>("flatten: start dim {} comes after end dim {}", start, end);
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
  const std::size_t i = detail::wrap_dim("transpose", a, x.shape()), j = detail::wrap_dim("transpose", b, x.shape());
  return record({"transpose", caller}, make_view(x, detail::transpose(x.ref()->layout, i, j)), x,
                [a, b](const BackwardContext&, const Tensor& dy) -> Grads { return {transpose(dy, a, b)}; });
}

Tensor permute(const Tensor& x, const Dims& order, Caller caller) {
  Tensor y = make_view(x, detail::permute("permute", x.impl("permute").layout, order));
  Dims back = order;
  for (std::size_t i = 0; i < y.shape().size(); ++i) back[detail::wrap_dim("permute", order[i], x.shape())] = static_cast<Index>(i);
  return record({"permute", caller}, std::move(y), x, [back](const BackwardContext&, const Tensor& dy) -> Grads { return {permute(dy, back)}; });
}

Tensor squeeze(const Tensor& x, std::optional<Index> dim, Caller caller) {
  detail::Layout layout = x.impl("squeeze").layout;
  const std::size_t only = dim ? detail::wrap_dim("squeeze", *dim, x.shape()) : 0;
  for (std::size_t i = layout.shape.size(); i-- > 0;)
    if (layout.shape[i] == 1 && (!dim || i == only)) layout = detail::squeeze(layout, i);
  return record({"squeeze", caller}, make_view(x, layout), x,
                [from = x.shape()](const BackwardContext&, const Tensor& dy) -> Grads { return {reshape(dy, from)}; });
}

Tensor unsqueeze(const Tensor& x, Index dim, Caller caller) {
  Dims longer = x.shape();
  longer.push_back(1);
  const std::size_t at = detail::wrap_dim("unsqueeze", dim, longer);
  return record({"unsqueeze", caller}, make_view(x, detail::unsqueeze(x.ref()->layout, at)), x,
                [from = x.shape()](const BackwardContext&, const Tensor& dy) -> Grads { return {reshape(dy, from)}; });
}

Tensor expand(const Tensor& x, const Dims& shape, Caller caller) {
  detail::Layout layout = detail::expand("expand", x.impl("expand").layout, shape);
  detail::checked_numel("expand", layout.shape, detail::size_of(x.dtype()));
  // The engine sums the gradient back to x's shape, as for every broadcast input.
  return record({"expand", caller}, make_view(x, layout), x, [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy}; });
}

Tensor slice(const Tensor& x, Index dim, Index start, Index end, Index step, Caller caller) {
  const std::size_t d = detail::wrap_dim("slice", dim, x.shape());
  detail::Layout layout = detail::slice("slice", x.ref()->layout, d, start, end, step);
  const Index size = x.shape()[d], first = std::clamp<Index>(start < 0 ? start + size : start, 0, size);
  return record({"slice", caller}, make_view(x, layout), x, [shape = x.shape(), d, first, step](const BackwardContext&, const Tensor& dy) -> Grads {
    return {detail::slice_backward(dy, shape, static_cast<Index>(d), first, step)};
  });
}

Tensor detail::slice_backward(const Tensor& x, const Dims& shape, Index dim, Index start, Index step, Caller caller) {
  Tensor y = zeros(shape, x.dtype());
  const Index picked = x.size(dim), end = picked == 0 ? start : start + step * (picked - 1) + 1;
  const Layout at = slice("slice", y.ref()->layout, static_cast<std::size_t>(dim), start, end, step);
  dispatch(x.dtype(), [&]<class T>() { kernels::copy<T, T>(y.mutable_data<T>() + at.offset, at.strides, {x.data<T>(), x.strides()}, x.shape()); });
  return record({"slice_backward", caller}, std::move(y), x,
                [dim, start, end, step](const BackwardContext&, const Tensor& dy) -> Grads { return {heed::slice(dy, dim, start, end, step)}; });
}

Tensor select(const Tensor& x, Index dim, Index i, Caller caller) {
  const std::size_t d = detail::wrap_dim("select", dim, x.shape());
  detail::Layout layout = detail::select("select", x.ref()->layout, d, i);
  const Index at = i < 0 ? i + x.shape()[d] : i;
  return record({"select", caller}, make_view(x, layout), x, [shape = x.shape(), d, at](const BackwardContext&, const Tensor& dy) -> Grads {
    return {detail::slice_backward(unsqueeze(dy, static_cast<Index>(d)), shape, static_cast<Index>(d), at, 1)};
  });
}

Tensor Tensor::operator[](At at) const { return select(*this, 0, at.i, at.caller); }

Tensor detail::alias(const Tensor& x, Caller caller) {
  return record({"alias", caller}, make_view(x, x.impl("alias").layout), x, [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy}; });
}

Tensor Tensor::clone(Caller caller) const {
  Tensor y = detail::make_empty(impl("clone").layout.shape, dtype());
  detail::dispatch(dtype(), [&]<class T>() { kernels::copy<T, T>(y.mutable_data<T>(), y.strides(), {data<T>(), strides()}, shape()); });
  return record({"clone", caller}, std::move(y), *this, [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy}; });
}

Tensor Tensor::contiguous(Caller caller) const { return is_contiguous() ? *this : clone(caller); }

Tensor Tensor::to(DType wanted, Caller caller) const {
  const DType from = impl("to").dtype;
  if (from == wanted) return *this;
  Tensor y = detail::make_empty(shape(), wanted);
  detail::dispatch(from, [&]<class F>() {
    detail::dispatch(wanted, [&]<class T>() { kernels::copy<T, F>(y.mutable_data<T>(), y.strides(), {data<F>(), strides()}, shape()); });
  });
  if (!detail::is_float(wanted)) {  // a step function: nothing flows back
    const NoGrad off;
    return record({"to", caller}, std::move(y), *this, [](const BackwardContext&, const Tensor&) -> Grads { return {Tensor()}; });
  }
  return record({"to", caller}, std::move(y), *this, [from](const BackwardContext&, const Tensor& dy) -> Grads { return {dy.to(from)}; });
}

namespace {

void require_writable(const char* op, const Tensor& t) {
  if (!t.is_leaf()) detail::raise<GradError>("{}: only leaves are written in place, this is the output of {}", op, detail::node_of(t)->name);
  if (t.requires_grad() && detail::thread_state.grad_enabled)
    detail::raise<GradError>("{}: a leaf that requires a gradient is written under NoGrad only", op);
  if (detail::overlaps_itself(t.ref()->layout))
    detail::raise<ShapeError>("{}: elements share memory: shape {}, strides {}", op, t.shape(), t.strides());
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

Tensor& Tensor::fill_(double value) {
  impl("fill_");
  require_writable("fill_", *this);
  const NoGrad off;
  return copy_(full({}, value, dtype()));
}

}  // namespace heed
