#include "forward.h"

namespace heed {

using detail::binary_forward;
using kernels::Binary;

namespace {

Tensor add(const Tensor& a, const Tensor& b, Caller caller) {
  return record({"add", caller}, binary_forward("add", Binary::add, a, b), a, b, [](const BackwardContext&, const Tensor& dy) -> Grads {
    return {dy, dy};
  });
}

Tensor sub(const Tensor& a, const Tensor& b, Caller caller) {
  return record({"sub", caller}, binary_forward("sub", Binary::sub, a, b), a, b, [](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {dy, ctx.needs(1) ? -dy : Tensor()};
  });
}

// da = b dy, db = a dy
Tensor mul(const Tensor& a, const Tensor& b, Caller caller) {
  return record({"mul", caller}, binary_forward("mul", Binary::mul, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  return {ctx.needs(0) ? dy * b.get() : Tensor(), ctx.needs(1) ? dy * a.get() : Tensor()};
                });
}

// da = dy / b, db = -a dy / b^2
Tensor div(const Tensor& a, const Tensor& b, Caller caller) {
  return record({"div", caller}, binary_forward("div", Binary::div, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  const Tensor da = dy / b.get();
                  return {da, ctx.needs(1) ? -(da * (a.get() / b.get())) : Tensor()};
                });
}

// da = b a^(b-1) dy, db = a^b log(a) dy
Tensor power(const Tensor& a, const Tensor& b, Caller caller) {
  Tensor y = binary_forward("pow", Binary::pow, a, b);
  return record({"pow", caller}, y, a, b, [a = saved(a), b = saved(b), y = saved(y)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    const Tensor base = a.get(), exponent = b.get();
    Tensor da, db;
    // b = 0 makes a constant, also at a = 0 where a^(b-1) is infinite.
    if (ctx.needs(0)) da = dy * where(eq(exponent, 0), 0.0, exponent * pow(base, exponent - 1));
    // 0^b is 0 for every b > 0: flat, though log 0 is not. The logarithm is kept away from 0, or its own derivative would be 0 times infinity.
    if (ctx.needs(1)) db = dy * (y.get() * log(where(eq(base, 0) & ge(exponent, 0), 1, base)));
    return {da, db};
  });
}

/// Which share of the gradient goes to the first operand: 1 where it wins, half at a tie.
Tensor share_of_first(const Tensor& wins, const Tensor& ties, DType dtype) { return wins.to(dtype) + ties.to(dtype) * 0.5; }

Tensor larger(const Tensor& a, const Tensor& b, Caller caller) {
  return record({"maximum", caller}, binary_forward("maximum", Binary::maximum, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  const Tensor da = dy * share_of_first(gt(a.get(), b.get()), eq(a.get(), b.get()), dy.dtype());
                  return {da, ctx.needs(1) ? dy - da : Tensor()};
                });
}

Tensor smaller(const Tensor& a, const Tensor& b, Caller caller) {
  return record({"minimum", caller}, binary_forward("minimum", Binary::minimum, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  const Tensor da = dy * share_of_first(lt(a.get(), b.get()), eq(a.get(), b.get()), dy.dtype());
                  return {da, ctx.needs(1) ? dy - da : Tensor()};
                });
}

/// A number as left operand: as a tensor without dims beside `b`.
Tensor beside(const char* op, const LeftNumber& a, const Tensor& b) { return detail::as_tensor(op, a.number, b.impl(op).dtype); }

}  // namespace

Tensor operator+(const Tensor& a, const Operand& b) { return add(a, b.beside("add", a.impl("add").dtype), b.caller); }
Tensor operator-(const Tensor& a, const Operand& b) { return sub(a, b.beside("sub", a.impl("sub").dtype), b.caller); }
Tensor operator*(const Tensor& a, const Operand& b) { return mul(a, b.beside("mul", a.impl("mul").dtype), b.caller); }
Tensor operator/(const Tensor& a, const Operand& b) { return div(a, b.beside("div", a.impl("div").dtype), b.caller); }
Tensor operator+(const LeftNumber& a, const Tensor& b) { return add(beside("add", a, b), b, a.caller); }
Tensor operator-(const LeftNumber& a, const Tensor& b) { return sub(beside("sub", a, b), b, a.caller); }
Tensor operator*(const LeftNumber& a, const Tensor& b) { return mul(beside("mul", a, b), b, a.caller); }
Tensor operator/(const LeftNumber& a, const Tensor& b) { return div(beside("div", a, b), b, a.caller); }

Tensor operator-(const Located& x) {
  return record({"neg", x.caller}, detail::unary_forward("neg", kernels::Unary::neg, x.tensor), x.tensor,
                [](const BackwardContext&, const Tensor& dy) -> Grads { return {-dy}; });
}

Tensor pow(const Tensor& a, const Operand& b) { return power(a, b.beside("pow", a.impl("pow").dtype), b.caller); }
Tensor pow(const LeftNumber& a, const Tensor& b) { return power(beside("pow", a, b), b, a.caller); }
Tensor maximum(const Tensor& a, const Operand& b) { return larger(a, b.beside("maximum", a.impl("maximum").dtype), b.caller); }
Tensor minimum(const Tensor& a, const Operand& b) { return smaller(a, b.beside("minimum", a.impl("minimum").dtype), b.caller); }

}  // namespace heed
