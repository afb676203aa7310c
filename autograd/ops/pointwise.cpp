#include "forward.h"

namespace heed {

using detail::unary_forward;
using kernels::Unary;

// dx = y dy
Tensor exp(const Tensor& x, Caller caller) {
  const OpName op{"exp", caller};
  Tensor y = unary_forward(op, Unary::exp, x);
  return record(op, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * y.get()}; });
}

// dx = dy / x
Tensor log(const Tensor& x, Caller caller) {
  const OpName op{"log", caller};
  return record(op, unary_forward(op, Unary::log, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy / x.get()}; });
}

// dx = dy / (1 + x)
Tensor log1p(const Tensor& x, Caller caller) {
  const OpName op{"log1p", caller};
  return record(op, unary_forward(op, Unary::log1p, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy / (1 + x.get())}; });
}

// dx = dy / (2 y)
Tensor sqrt(const Tensor& x, Caller caller) {
  const OpName op{"sqrt", caller};
  Tensor y = unary_forward(op, Unary::sqrt, x);
  return record(op, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy / (2 * y.get())}; });
}

// dx = -y^3 dy / 2
Tensor rsqrt(const Tensor& x, Caller caller) {
  const OpName op{"rsqrt", caller};
  Tensor y = unary_forward(op, Unary::rsqrt, x);
  return record(op, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (-0.5 * (square(y.get()) * y.get()))}; });
}

// dx = 2 x dy
Tensor square(const Tensor& x, Caller caller) {
  const OpName op{"square", caller};
  return record(op, unary_forward(op, Unary::square, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (2 * x.get())}; });
}

// dx = sign(x) dy; 0 at 0 also for an infinite dy
Tensor abs(const Tensor& x, Caller caller) {
  const OpName op{"abs", caller};
  return record(op, unary_forward(op, Unary::abs, x), x, [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads {
    return {detail::drop("abs_backward", dy, unary_forward("sign", Unary::sign, x.get()))};
  });
}

// dx = (1 - y^2) dy
Tensor tanh(const Tensor& x, Caller caller) {
  const OpName op{"tanh", caller};
  Tensor y = unary_forward(op, Unary::tanh, x);
  return record(op, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (1 - square(y.get()))}; });
}

// dx = y (1 - y) dy
Tensor sigmoid(const Tensor& x, Caller caller) {
  const OpName op{"sigmoid", caller};
  Tensor y = unary_forward(op, Unary::sigmoid, x);
  return record(op, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (y.get() * (1 - y.get()))}; });
}

// dx = dy where x > 0
Tensor relu(const Tensor& x, Caller caller) {
  const OpName op{"relu", caller};
  return record(op, unary_forward(op, Unary::relu, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {where(gt(x.get(), 0), dy, 0)}; });
}

// dx = 2 / sqrt(pi) exp(-x^2) dy
Tensor detail::erf(const Tensor& x, Caller caller) {
  const OpName op{"erf", caller};
  return record(op, unary_forward(op, Unary::erf, x), x, [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads {
    return {dy * (1.12837916709551257390 * exp(-square(x.get())))};
  });
}

namespace {

/// The derivative of an activation: one fused pass, or the rule written with ops where the backward is differentiated again.
Tensor slope(kernels::Binary fused, const char* op, const BackwardContext& ctx, const Tensor& x, const Tensor& dy, Tensor (*rule)(const Tensor&)) {
  return ctx.creates_graph() ? dy * rule(x) : detail::binary_forward(op, fused, x, dy);
}

// s (1 + x (1 - s)), s = sigmoid(x)
Tensor silu_rule(const Tensor& x) {
  const Tensor s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

constexpr double sqrt_2_over_pi = 0.79788456080286535588, inv_sqrt_2pi = 0.39894228040143267794, inv_sqrt_2 = 0.70710678118654752440;

// Phi(x) + x phi(x), the normal distribution function and its density
Tensor gelu_erf_rule(const Tensor& x) { return 0.5 * (1 + detail::erf(inv_sqrt_2 * x)) + x * (inv_sqrt_2pi * exp(-0.5 * square(x))); }

// (1 + t) / 2 + x (1 - t^2) / 2 sqrt(2/pi) (1 + 3 c x^2), t = tanh(sqrt(2/pi) (x + c x^3))
Tensor gelu_tanh_rule(const Tensor& x) {
  constexpr double c = 0.044715;
  const Tensor x2 = square(x), t = tanh(sqrt_2_over_pi * (x * (1 + c * x2)));
  return 0.5 * (1 + t) + 0.5 * sqrt_2_over_pi * (x * (1 - square(t)) * (1 + 3 * c * x2));
}

}  // namespace

Tensor silu(const Tensor& x, Caller caller) {
  const OpName op{"silu", caller};
  return record(op, unary_forward(op, Unary::silu, x), x, [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {slope(kernels::Binary::silu_backward, "silu", ctx, x.get(), dy, silu_rule)};
  });
}

Tensor gelu(const Tensor& x, Gelu kind, Caller caller) {
  const OpName op{"gelu", caller};
  if (kind == Gelu::erf)
    return record(op, unary_forward(op, Unary::gelu_erf, x), x, [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
      return {slope(kernels::Binary::gelu_erf_backward, "gelu", ctx, x.get(), dy, gelu_erf_rule)};
    });
  return record(op, unary_forward(op, Unary::gelu_tanh, x), x, [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {slope(kernels::Binary::gelu_tanh_backward, "gelu", ctx, x.get(), dy, gelu_tanh_rule)};
  });
}

}  // namespace heed
