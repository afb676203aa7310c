#include "forward.h"

namespace heed {

Tensor Operand::beside(const OpName& op, DType dtype) const { return tensor_ ? *tensor_ : detail::as_tensor(op, number_, dtype); }

namespace detail {

void raise_different_dtypes(const OpName& op, DType a, DType b) {
  // The one that holds the values of both, or nearly: f32 < f64, whole numbers below both, truth values below all.
  const auto rank = [](DType t) { return t == f64 ? 3 : t == f32 ? 2 : t == i64 ? 1 : 0; };
  raise<DTypeError>(op, "dtypes differ: {} and {}; convert one with .to({})", a, b, rank(a) > rank(b) ? a : b);
}

Tensor as_tensor(const OpName& op, const Number& number, DType dtype) {
  return dispatch(dtype, [&]<class T>() {
    const T element = as_element<T>(op, number);
    Tensor out = make_empty({}, dtype, op);
    *out.mutable_data<T>() = element;
    return out;
  });
}

Tensor unary_forward(const OpName& op, kernels::Unary kind, const Tensor& x) {
  using kernels::Unary;
  const DType dtype = x.impl(op).dtype;
  const bool takes_index = kind == Unary::neg || kind == Unary::abs || kind == Unary::sign || kind == Unary::square || kind == Unary::relu;
  if (dtype == DType::boolean || (dtype == DType::i64 && !takes_index)) raise<DTypeError>(op, "does not take {}", dtype);
  Tensor out = make_empty(x.shape(), dtype, op);
  if (dtype == DType::i64)
    kernels::unary<Index>(kind, out.mutable_data<Index>(), {x.data<Index>(), x.strides()}, x.shape());
  else
    dispatch_float(dtype, [&]<class T>() { kernels::unary<T>(kind, out.mutable_data<T>(), {x.data<T>(), x.strides()}, x.shape()); });
  return out;
}

Tensor binary_forward(const OpName& op, kernels::Binary kind, const Tensor& a, const Tensor& b) {
  using kernels::Binary;
  require_same_dtype(op, a, b);
  const DType dtype = a.dtype();
  const bool takes_index = kind == Binary::add || kind == Binary::sub || kind == Binary::mul || kind == Binary::maximum || kind == Binary::minimum;
  if (dtype == DType::boolean || (dtype == DType::i64 && !takes_index)) raise<DTypeError>(op, "does not take {}", dtype);
  const Dims shape = common_shape(op, a, b);
  Tensor out = make_empty(shape, dtype, op);
  if (dtype == DType::i64)
    kernels::binary<Index>(kind, out.mutable_data<Index>(), over<Index>(a, shape), over<Index>(b, shape), shape);
  else
    dispatch_float(dtype, [&]<class T>() { kernels::binary<T>(kind, out.mutable_data<T>(), over<T>(a, shape), over<T>(b, shape), shape); });
  return out;
}

// dx = dy scale where it is not 0, and so on for all derivatives
Tensor drop(const OpName& op, const Tensor& x, const Tensor& scale) {
  return record(op, binary_forward(op, kernels::Binary::drop, x, scale), x,
                [scale = saved(scale), name = op.name](const BackwardContext&, const Tensor& dy) -> Grads { return {drop(name, dy, scale.get())}; });
}

}  // namespace detail
}  // namespace heed
