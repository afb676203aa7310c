#include "forward.h"

namespace heed {

Tensor Operand::beside(const char* op, DType dtype) const { return tensor_ ? *tensor_ : detail::as_tensor(op, number_, dtype); }

namespace detail {

Tensor as_tensor(const char* op, const Number& number, DType dtype) {
  return dispatch(dtype, [&]<class T>() {
    const T element = as_element<T>(op, number);
    Tensor out = make_empty({}, dtype);
    *out.mutable_data<T>() = element;
    return out;
  });
}

Tensor unary_forward(const char* op, kernels::Unary kind, const Tensor& x) {
  using kernels::Unary;
  const DType dtype = x.impl(op).dtype;
  const bool takes_index = kind == Unary::neg || kind == Unary::abs || kind == Unary::sign || kind == Unary::square || kind == Unary::relu;
  if (dtype == DType::boolean || (dtype == DType::i64 && !takes_index)) raise<DTypeError>("{}: does not take {}", op, dtype);
  Tensor out = make_empty(x.shape(), dtype);
  if (dtype == DType::i64)
    kernels::unary<Index>(kind, out.mutable_data<Index>(), {x.data<Index>(), x.strides()}, x.shape());
  else
    dispatch_float(dtype, [&]<class T>() { kernels::unary<T>(kind, out.mutable_data<T>(), {x.data<T>(), x.strides()}, x.shape()); });
  return out;
}

Tensor binary_forward(const char* op, kernels::Binary kind, const Tensor& a, const Tensor& b) {
  using kernels::Binary;
  require_same_dtype(op, a, b);
  const DType dtype = a.dtype();
  const bool takes_index = kind == Binary::add || kind == Binary::sub || kind == Binary::mul || kind == Binary::maximum || kind == Binary::minimum;
  if (dtype == DType::boolean || (dtype == DType::i64 && !takes_index)) raise<DTypeError>("{}: does not take {}", op, dtype);
  const Dims shape = common_shape(op, a, b);
  Tensor out = make_empty(shape, dtype);
  if (dtype == DType::i64)
    kernels::binary<Index>(kind, out.mutable_data<Index>(), over<Index>(a, shape), over<Index>(b, shape), shape);
  else
    dispatch_float(dtype, [&]<class T>() { kernels::binary<T>(kind, out.mutable_data<T>(), over<T>(a, shape), over<T>(b, shape), shape); });
  return out;
}

}  // namespace detail
}  // namespace heed
