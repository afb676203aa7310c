#include "forward.h"

namespace heed {

Tensor Operand::beside(const char* op, DType dtype) const {
  if (tensor_) return *tensor_;
  if (dtype == DType::i64 && !number_.is_whole && number_.real != static_cast<double>(static_cast<Index>(number_.real)))
    detail::raise<DTypeError>("{}: a fractional number beside an i64 tensor: {}", op, number_.real);
  Tensor out = detail::make_empty({}, dtype);
  switch (dtype) {
    case DType::f32: *out.mutable_data<float>() = static_cast<float>(number_.real); break;
    case DType::f64: *out.mutable_data<double>() = number_.real; break;
    case DType::i64: *out.mutable_data<Index>() = number_.is_whole ? number_.whole : static_cast<Index>(number_.real); break;
    case DType::boolean: *out.mutable_data<bool>() = number_.real != 0; break;
  }
  return out;
}

namespace detail {

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
