#include "forward.h"

namespace heed {

using detail::binary_forward;
using detail::unary_forward;
using kernels::Binary;
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
  return record(op, y, x, [y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (square(y.get()) * (-0.5 * y.get()))}; });
}

// dx = 2 x dy, in an order that gives 0 for a dy of 0 also where 2 x is infinite
Tensor square(const Tensor& x, Caller caller) {
  const OpName op{"square", caller};
  return record(op, unary_forward(op, Unary::square, x), x,
                [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {2 * (dy * x.get())}; });
}

// dx = sign(x) dy, 0 at 0 whatever dy is
Tensor abs(const Tensor& x, Caller caller) {
  const OpName op{"abs", caller};
  return record(op, unary_forward(op, Unary::abs, x), x, [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    if (!ctx.creates_graph()) return {binary_forward("abs", Binary::abs_backward, x.get(), dy)};
    return {where(eq(x.get(), 0), 0, dy * unary_forward("sign", Unary::sign, x.get()))};
  });
}

// dx = dy where x > 0
Tensor relu(const Tensor& x, Caller caller) {
  const OpName op{"relu", caller};
  return record(op, unary_forward(op, Unary::relu, x), x, [x = saved(x)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {ctx.creates_graph() ? where(gt(x.get(), 0), dy, 0) : binary_forward("relu", Binary::relu_backward, x.get(), dy)};
  });
}

namespace {

// Activations. What is 1 - y^2 or y (1 - y) on paper loses its digits where y is near 1, so that derivatives are computed from x. Second derivatives
// are products with the square of a bell h, which is split in two: what stands between may be large where h^2 is too small for a number.

/// A function, its derivative times dy in one pass, and its second derivative, written with ops.
struct Curve {
  const char* name;
  Unary value;
  Binary slope;
  Tensor (*second)(const Tensor& x);
};

Tensor slope_of(const Curve& curve, const Tensor& x) {
  const OpName op(curve.name);
  return record(op, binary_forward(op, curve.slope, x, detail::as_tensor(op, 1, x.dtype())), x,
                [x = saved(x), second = curve.second](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * second(x.get())}; });
}

Tensor draw(const Curve& curve, const Tensor& x, Caller caller) {
  const OpName op{curve.name, caller};
  return record(op, unary_forward(op, curve.value, x), x, [x = saved(x), &curve](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    return {ctx.creates_graph() ? dy * slope_of(curve, x.get()) : binary_forward(curve.name, curve.slope, x.get(), dy)};
  });
}

constexpr double c1 = 1.59576912160573071176, c3 = c1 * 0.044715;  // gelu_tanh = x sigmoid(w), w = c1 x + c3 x^3

Tensor half_cubic(const Tensor& x) { return x * (0.5 * c1 + 0.5 * c3 * square(x)); }
Tensor slope_of_cubic(const Tensor& x) { return c1 + 3 * c3 * square(x); }
/// For x^2 beside a bell: far outside, where the bell is 0, x^2 is not infinite.
Tensor bounded(const Tensor& x) { return clamp(x, -1024, 1024); }

// sech x, dx = -y tanh(x) dy
Tensor sech(const Tensor& x) {
  Tensor y = unary_forward("sech", Unary::sech, x);
  return record("sech", y, x,
                [x = saved(x), y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {-(dy * (y.get() * tanh(x.get())))}; });
}

// e^(-x^2/4), dx = -x/2 y dy
Tensor gelu_erf_bell(const Tensor& x) {
  Tensor y = unary_forward("gelu_erf_bell", Unary::gelu_erf_bell, x);
  return record("gelu_erf_bell", y, x,
                [x = saved(x), y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy * (-0.5 * (y.get() * x.get()))}; });
}

// sech(w/2) / 2, dx = -y tanh(w/2) w'/2 dy
Tensor gelu_tanh_bell(const Tensor& x) {
  Tensor y = unary_forward("gelu_tanh_bell", Unary::gelu_tanh_bell, x);
  return record("gelu_tanh_bell", y, x, [x = saved(x), y = saved(y)](const BackwardContext&, const Tensor& dy) -> Grads {
    const Tensor at = x.get();
    return {dy * (-0.5 * (y.get() * slope_of_cubic(at) * tanh(half_cubic(at))))};
  });
}

// -2 sech^2 x tanh x
Tensor tanh_second(const Tensor& x) {
  const Tensor h = sech(x);
  return -2 * (h * (h * tanh(x)));
}

// -s (1 - s) tanh(x/2) with s (1 - s) = sech^2(x/2) / 4
Tensor sigmoid_second(const Tensor& x) {
  const Tensor half = 0.5 * x, h = sech(half);
  return -0.25 * (h * (h * tanh(half)));
}

// s (1 - s) (2 - x tanh(x/2))
Tensor silu_second(const Tensor& x) {
  const Tensor at = bounded(x), half = 0.5 * at, h = 0.5 * sech(half);
  return h * (h * (2 - at * tanh(half)));
}

// phi(x) (2 - x^2)
Tensor gelu_erf_second(const Tensor& x) {
  constexpr double inverse_sqrt_2pi = 0.39894228040143267794;
  const Tensor at = bounded(x), h = gelu_erf_bell(at);
  return h * (h * (2 * inverse_sqrt_2pi - inverse_sqrt_2pi * square(at)));
}

// s (1 - s) (2 w' + x w'' - x w'^2 tanh(w/2)) with s = sigmoid(w)
Tensor gelu_tanh_second(const Tensor& x) {
  const Tensor at = bounded(x), h = gelu_tanh_bell(at), slope = slope_of_cubic(at);
  return h * (h * (2 * slope + 6 * c3 * square(at) - at * square(slope) * tanh(half_cubic(at))));
}

constexpr Curve tanh_curve{"tanh", Unary::tanh, Binary::tanh_backward, tanh_second};
constexpr Curve sigmoid_curve{"sigmoid", Unary::sigmoid, Binary::sigmoid_backward, sigmoid_second};
constexpr Curve silu_curve{"silu", Unary::silu, Binary::silu_backward, silu_second};
constexpr Curve gelu_erf_curve{"gelu", Unary::gelu_erf, Binary::gelu_erf_backward, gelu_erf_second};
constexpr Curve gelu_tanh_curve{"gelu", Unary::gelu_tanh, Binary::gelu_tanh_backward, gelu_tanh_second};

}  // namespace

Tensor tanh(const Tensor& x, Caller caller) { return draw(tanh_curve, x, caller); }
Tensor sigmoid(const Tensor& x, Caller caller) { return draw(sigmoid_curve, x, caller); }
Tensor silu(const Tensor& x, Caller caller) { return draw(silu_curve, x, caller); }
Tensor gelu(const Tensor& x, Gelu kind, Caller caller) { return draw(kind == Gelu::erf ? gelu_erf_curve : gelu_tanh_curve, x, caller); }

}  // namespace heed
