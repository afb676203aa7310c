#include "../../tensor/kernels/reduce.h"
#include "forward.h"

namespace heed {
namespace {

using kernels::Compare;

/// No op to boolean has a derivative; they still pass through record, so that everything that watches ops sees them.
constexpr auto no_gradient = [](const BackwardContext&, const Tensor&) -> Grads { return {Tensor()}; };
constexpr auto no_gradients = [](const BackwardContext&, const Tensor&) -> Grads { return {Tensor(), Tensor()}; };

Tensor compare(const char* name, Compare kind, const Tensor& a, const Operand& operand) {
  const OpName op{name, operand.caller};
  const Tensor b = operand.beside(op, a.impl(op).dtype);
  detail::require_same_dtype(op, a, b);
  const Dims shape = detail::common_shape(op, a, b);
  Tensor out = detail::make_empty(shape, boolean, op);
  detail::dispatch(a.dtype(), [&]<class T>() {
    kernels::compare<T>(kind, out.mutable_data<bool>(), detail::over<T>(a, shape), detail::over<T>(b, shape), shape);
  });
  NoGrad off;
  return record(op, out, a, b, no_gradients);
}

Tensor logical(const char* name, kernels::Logical kind, const Tensor& a, const Operand& operand) {
  const OpName op{name, operand.caller};
  const Tensor b = operand.beside(op, a.impl(op).dtype);
  detail::require_dtype(op, a, boolean);
  detail::require_dtype(op, b, boolean);
  const Dims shape = detail::common_shape(op, a, b);
  Tensor out = detail::make_empty(shape, boolean, op);
  kernels::logical(kind, out.mutable_data<bool>(), detail::over<bool>(a, shape), detail::over<bool>(b, shape), shape);
  return record(op, out, a, b, no_gradients);
}

using Test = void (*)(const Tensor&, Tensor&);

Tensor test(const OpName& op, const Tensor& x, Test floats) {
  Tensor out = detail::make_empty(x.impl(op).layout.shape, boolean, op);
  floats(x, out);
  NoGrad off;
  return record(op, out, x, no_gradient);
}

using Quantifier = void (*)(bool*, const bool*, const kernels::Axes&, const kernels::Axes&);

Tensor quantify(const OpName& op, const Tensor& x, const Dims& dims, bool keepdim, Quantifier kernel) {
  detail::require_dtype(op, x, boolean);
  const Dims reduced = detail::wrap_dims(op, dims, x.shape());
  Tensor out = detail::make_empty(detail::reduced_shape(x.shape(), reduced, keepdim), boolean, op);
  kernels::Axes kept, gone;
  for (std::size_t i = 0; i < x.shape().size(); ++i) {
    kernels::Axes& axes = reduced.contains(static_cast<Index>(i)) ? gone : kept;
    axes.shape.push_back(x.shape()[i]), axes.strides.push_back(x.strides()[i]);
  }
  kernel(out.mutable_data<bool>(), x.data<bool>(), kept, gone);
  return record(op, out, x, no_gradient);
}

}  // namespace

Tensor eq(const Tensor& a, const Operand& b) { return compare("eq", Compare::eq, a, b); }
Tensor ne(const Tensor& a, const Operand& b) { return compare("ne", Compare::ne, a, b); }
Tensor lt(const Tensor& a, const Operand& b) { return compare("lt", Compare::lt, a, b); }
Tensor le(const Tensor& a, const Operand& b) { return compare("le", Compare::le, a, b); }
Tensor gt(const Tensor& a, const Operand& b) { return compare("gt", Compare::gt, a, b); }
Tensor ge(const Tensor& a, const Operand& b) { return compare("ge", Compare::ge, a, b); }

Tensor isnan(const Tensor& x, Caller caller) {
  return test({"isnan", caller}, x, [](const Tensor& in, Tensor& out) {
    if (!detail::is_float(in.dtype())) return kernels::fill(out.mutable_data<bool>(), false, out.numel());
    detail::dispatch_float(in.dtype(), [&]<class T>() { kernels::isnan<T>(out.mutable_data<bool>(), {in.data<T>(), in.strides()}, in.shape()); });
  });
}
Tensor isfinite(const Tensor& x, Caller caller) {
  return test({"isfinite", caller}, x, [](const Tensor& in, Tensor& out) {
    if (!detail::is_float(in.dtype())) return kernels::fill(out.mutable_data<bool>(), true, out.numel());
    detail::dispatch_float(in.dtype(), [&]<class T>() { kernels::isfinite<T>(out.mutable_data<bool>(), {in.data<T>(), in.strides()}, in.shape()); });
  });
}

Tensor operator&(const Tensor& a, const Operand& b) { return logical("&", kernels::Logical::all_of, a, b); }
Tensor operator|(const Tensor& a, const Operand& b) { return logical("|", kernels::Logical::any_of, a, b); }
Tensor operator!(const Located& x) {
  const OpName op{"!", x.caller};
  detail::require_dtype(op, x.tensor, boolean);
  Tensor out = detail::make_empty(x.tensor.shape(), boolean, op);
  kernels::logical_not(out.mutable_data<bool>(), {x.tensor.data<bool>(), x.tensor.strides()}, x.tensor.shape());
  return record(op, out, x.tensor, no_gradient);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) { return quantify({"any", caller}, x, dims, keepdim, kernels::any); }
Tensor all(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) { return quantify({"all", caller}, x, dims, keepdim, kernels::all); }

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, Caller caller) {
  const OpName op{"allclose", caller};
  detail::require_same_dtype(op, a, b);
  (void)detail::common_shape(op, a, b);
  if (!(rtol >= 0 && atol >= 0)) detail::raise<Error>(op, "a tolerance is negative or not a number: rtol {}, atol {}", rtol, atol);
  const detail::Unseen inside;
  const bool whole = !detail::is_float(a.dtype());
  const DType dtype = whole ? f64 : a.dtype();
  const Tensor expected = b.to(dtype), rough = abs(a.to(dtype) - expected);
  // Whole numbers are subtracted as such, where the difference is one: f64 does not hold all of them.
  const Tensor off_by = whole ? where(lt(rough, 0x1p62), abs(a.to(i64) - b.to(i64)).to(f64), rough) : rough;
  // Infinities that are equal are off by NaN; beside an infinity that is expected, any number is within a bound that is infinite.
  return all(eq(a, b) | (isfinite(off_by) & le(off_by, atol + rtol * abs(expected)))).item<bool>();
}

}  // namespace heed
