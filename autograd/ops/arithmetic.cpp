#include "forward.h"

namespace heed {

using detail::binary_forward;
using kernels::Binary;

namespace {

Tensor add(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::add, a, b), a, b, [](const BackwardContext&, const Tensor& dy) -> Grads { return {dy, dy}; });
}

Tensor sub(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::sub, a, b), a, b, [](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {dy, ctx.needs(1) ? -dy : Tensor()};
  });
}

// da = b dy, db = a dy
Tensor mul(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::mul, a, b), a, b, [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {ctx.needs(0) ? dy * b.get() : Tensor(), ctx.needs(1) ? dy * a.get() : Tensor()};
  });
}

// da = dy / b, db = -a dy / b^2
Tensor div(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::div, a, b), a, b, [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    const Tensor da = dy / b.get();
    return {da, ctx.needs(1) ? -(da * (a.get() / b.get())) : Tensor()};
  });
}

// da = b a^(b-1) dy, db = a^b log(a) dy
Tensor power(const OpName& op, const Tensor& a, const Tensor& b) {
  Tensor y = binary_forward(op, Binary::pow, a, b);
  return record(op, y, a, b, [a = saved(a), b = saved(b), y = saved(y)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    const Tensor base = a.get(), exponent = b.get();
    Tensor da, db;
    // b = 0 makes a constant, also at a = 0 where a^(b-1) is infinite.
    if (ctx.needs(0)) da = dy * where(eq(exponent, 0), 0.0, exponent * pow(base, exponent - 1));
    // 0^b is 0 for every b > 0: flat, though log 0 is not. The logarithm is kept away from 0, or its own derivative would be 0 times infinity.
    if (ctx.needs(1)) db = dy * (y.get() * log(where(eq(base, 0) & ge(exponent, 0), 1, base)));
    return {da, db};
  });
}

/// dy to the operand that wins, half to each at a tie. Chosen, not multiplied with 0: that would make NaN of an infinite gradient.
Grads to_winner(const BackwardContext& ctx, const Tensor& dy, const Tensor& first_wins, const Tensor& tie) {
  const Tensor half = dy * 0.5;
  return {ctx.needs(0) ? where(first_wins, dy, where(tie, half, 0)) : Tensor(), ctx.needs(1) ? where(first_wins, 0, where(tie, half, dy)) : Tensor()};
}

Tensor larger(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::maximum, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  return to_winner(ctx, dy, gt(a.get(), b.get()), eq(a.get(), b.get()));
                });
}

Tensor smaller(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::minimum, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  return to_winner(ctx, dy, lt(a.get(), b.get()), eq(a.get(), b.get()));
                });
}

using Rule = Tensor (*)(const OpName&, const Tensor&, const Tensor&);

// A number becomes a tensor without dims of the other's dtype.
Tensor apply(const char* name, Rule f, const Tensor& a, const Operand& b) {
  const OpName op{name, b.caller};
  return f(op, a, b.beside(op, a.impl(op).dtype));
}
Tensor apply(const char* name, Rule f, const LeftNumber& a, const Tensor& b) {
  const OpName op{name, a.caller};
  return f(op, detail::as_tensor(op, a.number, b.impl(op).dtype), b);
}

}  // namespace

Tensor operator+(const Tensor& a, const Operand& b) { return apply("add", add, a, b); }
Tensor operator-(const Tensor& a, const Operand& b) { return apply("sub", sub, a, b); }
Tensor operator*(const Tensor& a, const Operand& b) { return apply("mul", mul, a, b); }
Tensor operator/(const Tensor& a, const Operand& b) { return apply("div", div, a, b); }
Tensor operator+(const LeftNumber& a, const Tensor& b) { return apply("add", add, a, b); }
Tensor operator-(const LeftNumber& a, const Tensor& b) { return apply("sub", sub, a, b); }
Tensor operator*(const LeftNumber& a, const Tensor& b) { return apply("mul", mul, a, b); }
Tensor operator/(const LeftNumber& a, const Tensor& b) { return apply("div", div, a, b); }

Tensor operator-(const Located& x) {
  const OpName op{"neg", x.caller};
  return record(op, detail::unary_forward(op, kernels::Unary::neg, x.tensor), x.tensor,
                [](const BackwardContext&, const Tensor& dy) -> Grads { return {-dy}; });
}

Tensor pow(const Tensor& a, const Operand& b) { return apply("pow", power, a, b); }
Tensor pow(const LeftNumber& a, const Tensor& b) { return apply("pow", power, a, b); }
Tensor maximum(const Tensor& a, const Operand& b) { return apply("maximum", larger, a, b); }
Tensor minimum(const Tensor& a, const Operand& b) { return apply("minimum", smaller, a, b); }

}  // namespace heed
