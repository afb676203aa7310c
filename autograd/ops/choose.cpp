#include "forward.h"

namespace heed {
namespace {

Tensor select_forward(const OpName& op, const Tensor& cond, const Tensor& a, const Tensor& b) {
  detail::require_dtype(op, cond, boolean);
  detail::require_same_dtype(op, a, b);
  const Dims shape = detail::broadcast_shapes(op, detail::common_shape(op, a, b), cond.shape());
  detail::checked_numel(op, shape, detail::size_of(a.dtype()));
  Tensor out = detail::make_empty(shape, a.dtype(), op);
  detail::dispatch(a.dtype(), [&]<class T>() {
    kernels::where<T>(out.mutable_data<T>(), detail::over<bool>(cond, shape), detail::over<T>(a, shape), detail::over<T>(b, shape), shape);
  });
  return out;
}

// da = cond ? dy : 0, db = cond ? 0 : dy
Tensor choose(const OpName& op, const Tensor& cond, const Tensor& a, const Tensor& b) {
  return record(op, select_forward(op, cond, a, b), cond, a, b, [cond = saved(cond)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {Tensor(), ctx.needs(1) ? where(cond.get(), dy, 0) : Tensor(), ctx.needs(2) ? where(cond.get(), 0, dy) : Tensor()};
  });
}

/// x where `stays(column - row)` of the last two dims, 0 elsewhere.
template <class Stays>
Tensor triangle(const OpName& op, const Tensor& x, Stays stays) {
  if (x.impl(op).layout.shape.size() < 2) detail::raise<ShapeError>(op, "wants at least two dims: shape {}", x.shape());
  const Index rows = x.size(-2), columns = x.size(-1);
  Tensor keep = detail::make_empty({rows, columns}, boolean, op);
  bool* p = keep.mutable_data<bool>();
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) *p++ = stays(j - i);
  const Tensor zero = Operand(0).beside(op, x.dtype());
  return record(op, select_forward(op, keep, x, zero), x,
                [keep = saved(keep)](const BackwardContext&, const Tensor& dy) -> Grads { return {where(keep.get(), dy, 0)}; });
}

}  // namespace

Tensor where(const Tensor& cond, const Operand& a, const Operand& b) {
  const OpName op{"where", a.caller};
  if (!a.tensor() && !b.tensor()) detail::raise<DTypeError>(op, "at least one of the two choices must be a tensor");
  const DType dtype = (a.tensor() ? a : b).tensor()->impl(op).dtype;
  return choose(op, cond, a.beside(op, dtype), b.beside(op, dtype));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value) {
  const OpName op{"masked_fill", value.caller};
  Tensor fill = value.beside(op, x.impl(op).dtype);
  if (mask.impl(op).dtype != boolean) detail::raise<DTypeError>(op, "wants boolean, not {}: eq(mask, 0) is true where the mask is 0", mask.dtype());
  detail::require_same_dtype(op, x, fill);
  if (fill.numel() != 1) detail::raise<ShapeError>(op, "the value has {} elements: shape {}", fill.numel(), fill.shape());
  if (!detail::broadcasts_to(mask.shape(), x.shape())) detail::raise<ShapeError>(op, "the mask {} does not broadcast to {}", mask.shape(), x.shape());
  if (fill.dim() > 0) fill = reshape(fill, {}, value.caller);
  return record(op, select_forward(op, mask, fill, x), x, mask, fill, [mask = saved(mask)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {masked_fill(dy, mask.get(), 0), Tensor(), ctx.needs(2) ? where(mask.get(), dy, 0) : Tensor()};
  });
}

// dx = dy where low <= x <= high
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high, Caller caller) {
  const OpName op{"clamp", caller};
  detail::require_float(op, x);
  if (low && high && !(*low <= *high)) detail::raise<Error>(op, "low {} is not <= high {}", *low, *high);
  using kernels::Binary;
  Tensor y = x.detach();
  if (low) y = detail::binary_forward(op, Binary::maximum, y, Operand(*low).beside(op, x.dtype()));
  if (high) y = detail::binary_forward(op, Binary::minimum, y, Operand(*high).beside(op, x.dtype()));
  return record(op, y, x, [x = saved(x), low, high](const BackwardContext&, const Tensor& dy) -> Grads {
    const Tensor value = x.get();
    Tensor inside = ones({}, boolean);
    if (low) inside = inside & ge(value, *low);
    if (high) inside = inside & le(value, *high);
    return {where(inside, dy, 0)};
  });
}

Tensor tril(const Tensor& x, Index diagonal, Caller caller) {
  return triangle({"tril", caller}, x, [diagonal](Index above) { return above <= diagonal; });
}
Tensor triu(const Tensor& x, Index diagonal, Caller caller) {
  return triangle({"triu", caller}, x, [diagonal](Index above) { return above >= diagonal; });
}

}  // namespace heed
