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

// da = dy / b, db = -y / b dy: b^2 would leave the range of numbers before a / b^2 does, and so would 1 / b
Tensor div(const OpName& op, const Tensor& a, const Tensor& b) {
  Tensor y = binary_forward(op, Binary::div, a, b);
  const bool b_moves = detail::needs_grad(b);
  return record(op, y, a, b, [b = saved(b), y = saved(b_moves ? y : Tensor())](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {ctx.needs(0) ? dy / b.get() : Tensor(), ctx.needs(1) ? -(dy * (y.get() / b.get())) : Tensor()};
  });
}

/// log a for a term that is 0 where a is 0 and b >= 0: kept away from 0 there, or its own derivative would be 0 times infinity.
Tensor log_of_base(const Tensor& a, const Tensor& b) { return log(where(eq(a, 0) & ge(b, 0), 1, a)); }

// y = b a^(b-1): da = b (b-1) a^(b-2) dy, db = (a^(b-1) + y log a) dy
Tensor power_slope(const Tensor& a, const Tensor& b) {
  const OpName op("pow");
  Tensor base = a, constant;
  if (detail::is_recorded(a, b)) {
    // a^0 is 1 for every a, so that no derivative in a may become 0 times infinity. Where b moves too, there is a derivative in b but at a = 0.
    constant = eq(b, 0);
    if (detail::is_recorded(b)) constant = constant & eq(a, 0);
    if (any(constant).item<bool>())
      base = where(constant, 1, a);
    else
      constant = Tensor();
  }
  Tensor y = binary_forward(op, Binary::pow_slope, base, b);
  y = record(op, y, base, b, [base = saved(base), b = saved(b), y = saved(y)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    const Tensor x = base.get(), n = b.get();
    return {ctx.needs(0) ? dy * (n * power_slope(x, n - 1)) : Tensor(),
            ctx.needs(1) ? dy * (pow(x, n - 1) + y.get() * log_of_base(x, n - 1)) : Tensor()};
  });
  return constant.defined() ? where(constant, 0, y) : y;
}

// da = b a^(b-1) dy, db = a^b log(a) dy
Tensor power(const OpName& op, const Tensor& a, const Tensor& b) {
  Tensor y = binary_forward(op, Binary::pow, a, b);
  return record(op, y, a, b, [a = saved(a), b = saved(b), y = saved(y)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    const Tensor base = a.get(), exponent = b.get();
    return {ctx.needs(0) ? dy * power_slope(base, exponent) : Tensor(), ctx.needs(1) ? dy * (y.get() * log_of_base(base, exponent)) : Tensor()};
  });
}

/// All of dy to the first operand where it wins, half to each at a tie, else all to the second. Chosen, not multiplied by 0: dy may be infinite.
Grads shared(const BackwardContext& ctx, const Tensor& wins, const Tensor& ties, const Tensor& dy) {
  const Tensor half = 0.5 * dy;
  return {ctx.needs(0) ? where(wins, dy, where(ties, half, 0)) : Tensor(), ctx.needs(1) ? where(wins, 0, where(ties, half, dy)) : Tensor()};
}

Tensor larger(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::maximum, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  return shared(ctx, gt(a.get(), b.get()), eq(a.get(), b.get()), dy);
                });
}

Tensor smaller(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, binary_forward(op, Binary::minimum, a, b), a, b,
                [a = saved(a), b = saved(b)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  return shared(ctx, lt(a.get(), b.get()), eq(a.get(), b.get()), dy);
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
