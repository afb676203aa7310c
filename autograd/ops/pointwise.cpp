#include "forward.h"

namespace heed {

using detail::unary_forward;
using kernels::Unary;

// dx = y dy
Tensor exp(const Tensor& x, Caller caller) {
  Tensor y = unary_forward("exp", Unary::exp, x);
  return record({"exp", caller}, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * y.get()}; });
}

// dx = dy / x
Tensor log(const Tensor& x, Caller caller) {
  return record({"log", caller}, unary_forward("log", Unary::log, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy / x.get()}; });
}

// dx = dy / (1 + x)
Tensor log1p(const Tensor& x, Caller caller) {
  return record({"log1p", caller}, unary_forward("log1p", Unary::log1p, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy / (1 + x.get())}; });
}

// dx = dy / (2 y)
Tensor sqrt(const Tensor& x, Caller caller) {
  Tensor y = unary_forward("sqrt", Unary::sqrt, x);
  return record({"sqrt", caller}, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy / (2 * y.get())}; });
}

// dx = -y^3 dy / 2
Tensor rsqrt(const Tensor& x, Caller caller) {
  Tensor y = unary_forward("rsqrt", Unary::rsqrt, x);
  return record({"rsqrt", caller}, y, x,
                [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (-0.5 * (square(y.get()) * y.get()))}; });
}

// dx = 2 x dy
Tensor square(const Tensor& x, Caller caller) {
  return record({"square", caller}, unary_forward("square", Unary::square, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (2 * x.get())}; });
}

// dx = sign(x) dy
Tensor abs(const Tensor& x, Caller caller) {
  return record({"abs", caller}, unary_forward("abs", Unary::abs, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * unary_forward("sign", Unary::sign, x.get())}; });
}

// dx = (1 - y^2) dy
Tensor tanh(const Tensor& x, Caller caller) {
  Tensor y = unary_forward("tanh", Unary::tanh, x);
  return record({"tanh", caller}, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (1 - square(y.get()))}; });
}

// dx = y (1 - y) dy
Tensor sigmoid(const Tensor& x, Caller caller) {
  Tensor y = unary_forward("sigmoid", Unary::sigmoid, x);
  return record({"sigmoid", caller}, y, x,
                [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (y.get() * (1 - y.get()))}; });
}

// dx = dy where x > 0
Tensor relu(const Tensor& x, Caller caller) {
  return record({"relu", caller}, unary_forward("relu", Unary::relu, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * gt(x.get(), 0).to(dy.dtype())}; });
}

// dx = 2 / sqrt(pi) exp(-x^2) dy
Tensor detail::erf(const Tensor& x, Caller caller) {
  return record({"erf", caller}, unary_forward("erf", Unary::erf, x), x, [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads {
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
  return record({"silu", caller}, unary_forward("silu", Unary::silu, x), x, [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {slope(kernels::Binary::silu_backward, "silu", ctx, x.get(), dy, silu_rule)};
  });
}

Tensor gelu(const Tensor& x, Gelu kind, Caller caller) {
  if (kind == Gelu::erf)
    return record({"gelu", caller}, unary_forward("gelu", Unary::gelu_erf, x), x,
                  [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                    return {slope(kernels::Binary::gelu_erf_backward, "gelu", ctx, x.get(), dy, gelu_erf_rule)};
                  });
  return record({"gelu", caller}, unary_forward("gelu", Unary::gelu_tanh, x), x,
                [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  return {slope(kernels::Binary::gelu_tanh_backward, "gelu", ctx, x.get(), dy, gelu_tanh_rule)};
                });
}

}  // namespace heed
