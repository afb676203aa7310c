#include "positions.h"

#include <cmath>
#include <vector>

#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed::nn {
namespace {

struct Angles {
  std::vector<double> cos, sin;
};

/// Neighboring positions are to be different numbers.
void check_positions(const OpName& op, Index T, Index offset) {
  constexpr Index most = Index{1} << 53;
  if (offset < -most || offset > most - T) detail::raise<Error>(op, "positions beyond 2^53: offset {}, T={}", offset, T);
}

/// t base^(-2i/d) for `count` frequencies i, (T, count).
Angles angles(Index T, Index count, Index d, double base, Index offset) {
  Angles out;
  out.cos.reserve(static_cast<std::size_t>(T * count)), out.sin.reserve(static_cast<std::size_t>(T * count));
  for (Index t = 0; t < T; ++t)
    for (Index i = 0; i < count; ++i) {
      const double angle = static_cast<double>(t + offset) * std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(d));
      out.cos.push_back(std::cos(angle)), out.sin.push_back(std::sin(angle));
    }
  return out;
}

}  // namespace

Tensor rotary(const Tensor& x, const RotaryOptions& options, Caller caller) {
  const OpName op{"rotary", caller};
  if (!detail::is_float(x.impl(op).dtype)) detail::raise<DTypeError>(op, "wants f32 or f64, not {}", x.dtype());
  if (x.dim() < 2 || x.size(-1) % 2 != 0) detail::raise<ShapeError>(op, "wants (..., T, d) with an even d: shape {}", x.shape());
  if (!(options.base > 0 && std::isfinite(options.base))) detail::raise<Error>(op, "base is not positive: {}", options.base);
  const Index T = x.size(-2), d = x.size(-1), half = d / 2;
  check_positions(op, T, options.offset);
  if (d == 0) return x;
  const Angles a = angles(T, half, d, options.base, options.offset);
  const Tensor cos = from_vector(a.cos, {T, half}).to(x.dtype(), caller), sin = from_vector(a.sin, {T, half}).to(x.dtype(), caller);
  const Operand c(cos, caller), s(sin, caller);
  const bool neighbors = options.pairs == RotaryPairs::neighbors;
  const Tensor first = neighbors ? slice(x, -1, 0, d, 2, caller) : slice(x, -1, 0, half, 1, caller);
  const Tensor second = neighbors ? slice(x, -1, 1, d, 2, caller) : slice(x, -1, half, d, 1, caller);
  const Tensor turned_first = first * c - Operand(second * s, caller), turned_second = first * s + Operand(second * c, caller);
  return neighbors ? flatten(stack({turned_first, turned_second}, -1, caller), -2, -1, caller) : cat({turned_first, turned_second}, -1, caller);
}

Tensor sinusoidal_positions(Index T, Index d, DType dtype, Index offset) {
  if (!detail::is_float(dtype)) detail::raise<DTypeError>("sinusoidal_positions: wants f32 or f64, not {}", dtype);
  detail::checked_numel("sinusoidal_positions", {T, d}, sizeof(double));
  check_positions("sinusoidal_positions", T, offset);
  const Index pairs = (d + 1) / 2;
  const Angles a = angles(T, pairs, d, 10000, offset);
  std::vector<double> table;
  table.reserve(static_cast<std::size_t>(T * d));
  for (Index t = 0; t < T; ++t)
    for (Index j = 0; j < d; ++j) table.push_back((j % 2 == 0 ? a.sin : a.cos)[static_cast<std::size_t>(t * pairs + j / 2)]);
  return from_vector(table, {T, d}).to(dtype).detach();
}

}  // namespace heed::nn
