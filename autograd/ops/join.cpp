#include "forward.h"

namespace heed {

// The gradient of each part is its slice of the gradient.
Tensor cat(const std::vector<Tensor>& tensors, Index dim, Caller caller) {
  const OpName op{"cat", caller};
  if (tensors.empty()) detail::raise<ShapeError>(op, "no tensors");
  const Tensor& first = tensors.front();
  const std::size_t d = detail::wrap_dim(op, dim, first.impl(op).layout.shape);
  if (first.dim() == 0) detail::raise<ShapeError>(op, "tensors without dims; use stack");
  Dims shape = first.shape();
  std::vector<Index> sizes{shape[d]};
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    detail::require_same_dtype(op, first, tensors[i]);
    Dims expected = tensors[i].shape();
    if (d < expected.size()) sizes.push_back(std::exchange(expected[d], first.shape()[d]));
    if (expected != first.shape())
      detail::raise<ShapeError>(op, "sizes differ outside dim {}: {} and tensor {} of {}", d, first.shape(), i, tensors[i].shape());
    shape[d] += sizes.back();
  }
  detail::checked_numel(op, shape, detail::size_of(first.dtype()));
  Tensor y = detail::make_empty(shape, first.dtype(), op);
  detail::dispatch(first.dtype(), [&]<class T>() {
    T* out = y.mutable_data<T>();
    for (const Tensor& t : tensors) {
      kernels::copy<T, T>(out, y.strides(), {t.data<T>(), t.strides()}, t.shape());
      out += t.shape()[d] * y.strides()[d];
    }
  });
  return record(op, std::move(y), tensors, [d, sizes](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    std::vector<Tensor> grads(sizes.size());
    Index start = 0;
    for (std::size_t i = 0; i < sizes.size(); start += sizes[i++])
      if (ctx.needs(i)) grads[i] = slice(dy, static_cast<Index>(d), start, start + sizes[i]);
    return grads;
  });
}

Tensor stack(const std::vector<Tensor>& tensors, Index dim, Caller caller) {
  const OpName op{"stack", caller};
  if (tensors.empty()) detail::raise<ShapeError>(op, "no tensors");
  std::vector<Tensor> rows;
  const Dims& shape = tensors[0].impl(op).layout.shape;
  for (const Tensor& t : tensors) {
    if (t.impl(op).layout.shape != shape) detail::raise<ShapeError>(op, "shapes differ: {} and {}", shape, t.shape());
    rows.push_back(unsqueeze(t, dim, caller));
  }
  return cat(rows, dim < 0 ? dim + rows[0].dim() : dim, caller);
}

// One node for all parts: their gradients are written beside each other.
std::vector<Tensor> split(const Tensor& x, Index size, Index dim, Caller caller) {
  const OpName op{"split", caller};
  if (size <= 0) detail::raise<ShapeError>(op, "size {} is not positive", size);
  const std::size_t d = detail::wrap_dim(op, dim, x.impl(op).layout.shape);
  if (x.dim() == 0) detail::raise<ShapeError>(op, "a 0-d tensor has no dim to split");
  std::vector<Tensor> parts;
  const Index total = x.shape()[d];
  for (Index start = 0; start < std::max<Index>(total, 1); start += size)
    parts.push_back(detail::make_view(x, detail::slice(op, x.ref()->layout, d, start, std::min(start + size, total), 1)));
  std::vector<Dims> shapes;
  for (const Tensor& p : parts) shapes.push_back(p.shape());
  return record(op, std::move(parts), x, [d, shapes, dtype = x.dtype()](const BackwardContext&, std::span<const Tensor> dys) -> Grads {
    std::vector<Tensor> pieces;
    for (std::size_t i = 0; i < shapes.size(); ++i) pieces.push_back(dys[i].defined() ? dys[i] : zeros(shapes[i], dtype));
    return {cat(pieces, static_cast<Index>(d))};
  });
}

std::vector<Tensor> chunk(const Tensor& x, Index count, Index dim, Caller caller) {
  const OpName op{"chunk", caller};
  if (count <= 0) detail::raise<ShapeError>(op, "count {} is not positive", count);
  const std::size_t d = detail::wrap_dim(op, dim, x.impl(op).layout.shape);
  if (x.dim() == 0) detail::raise<ShapeError>(op, "a 0-d tensor has no dim to split");
  const Index total = x.shape()[d];
  return split(x, std::max<Index>(total / count + (total % count != 0), 1), dim, caller);
}

}  // namespace heed
