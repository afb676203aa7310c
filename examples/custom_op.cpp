// An op of one's own: its forward over elements, its backward written with ops, and the checks that prove both.
#include <heed/autograd/op.h>
#include <heed/heed.h>

#include <cmath>
#include <iostream>

using namespace heed;

// n = x / sqrt(mean(x^2) + eps) along the last dim, of size C.
template <class T>
Tensor divide_by_rms(const Tensor& x, double eps) {
  std::vector<T> values = x.to_vector<T>();
  const auto C = static_cast<std::size_t>(x.size(-1));
  for (std::size_t row = 0; row < values.size(); row += C) {
    double squares = 0;
    for (std::size_t i = row; i < row + C; ++i) squares += double{values[i]} * values[i];
    for (std::size_t i = row; i < row + C; ++i) values[i] = static_cast<T>(values[i] / std::sqrt(squares / static_cast<double>(C) + eps));
  }
  return from_vector(values, x.shape());
}

// y = n g, the root-mean-square norm of x with a gain g (C): Zhang and Sennrich, 2019. With u = g dy and rms = sqrt(mean(x^2) + eps):
// dx = (u - n mean(n u)) / rms, dg = n dy
Tensor rms_norm(const Tensor& x, const Tensor& g, double eps = 1e-6, Caller caller = Caller::here()) {
  if (x.dim() == 0 || g.dim() != 1 || g.size(0) != x.size(-1)) throw ShapeError("rms_norm: wants a gain for each element of x's last dim");
  if (x.dtype() != f32 && x.dtype() != f64) throw DTypeError("rms_norm: wants f32 or f64");
  Tensor y;
  {
    NoGrad off;  // the forward is part of this op and needs no graph of its own
    y = (x.dtype() == f32 ? divide_by_rms<float>(x, eps) : divide_by_rms<double>(x, eps)) * g;
  }
  return record({"rms_norm", caller}, y, x, g, [x = saved(x), g = saved(g), eps](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    const Tensor inverse = rsqrt(mean(square(x.get()), {-1}, true) + eps), n = x.get() * inverse, u = g.get() * dy;
    // dg has x's shape here: the engine sums it down to g's.
    return {ctx.needs(0) ? (u - n * mean(n * u, {-1}, true)) * inverse : Tensor(), ctx.needs(1) ? n * dy : Tensor()};
  });
}

int main() {
  manual_seed(1);
  const Tensor x = randn({3, 4}, f64).requires_grad_(), g = rand({4}, f64).requires_grad_();
  const auto norm = [&] { return rms_norm(x, g); };
  const GradcheckReport first = gradcheck(norm, {{"x", x}, {"g", g}}), second = gradgradcheck(norm, {{"x", x}, {"g", g}});
  std::cout << first.message << "\n\nSecond derivatives\n" << second.message << "\n";
  return first && second ? 0 : 1;
}
