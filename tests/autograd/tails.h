#pragma once

#include <heed/autograd/backward.h>
#include <heed/autograd/ops.h>

#include <functional>
#include <random>

#include "close.h"

// What the tests of pointwise ops over all magnitudes share: true values in long double, and distances from them.

namespace heed::test {

using L = long double;

/// A true value; and how large the terms are that it is the sum of, where they cancel.
struct Exact {
  L value, size;
  Exact(L v) : value(v), size(std::abs(v)) {}
  Exact(L v, L terms) : value(v), size(std::max(std::abs(v), terms)) {}
};

/// The error in units in the last place of the terms: in the subnormal range of the smallest number, beyond the largest number of its last place.
template <class T>
double units(T got, const Exact& want) {
  using Limits = std::numeric_limits<T>;
  constexpr double never = 1e30;
  if (std::isnan(want.value) || std::isnan(got)) return std::isnan(want.value) && std::isnan(got) ? 0 : never;
  const bool both_infinite = std::isinf(got) && std::abs(want.value) > static_cast<L>(Limits::max()) && std::signbit(got) == std::signbit(want.value);
  if (both_infinite || static_cast<L>(got) == want.value) return 0;
  if (std::isinf(want.value)) return never;
  if (got == 0 && std::abs(want.value) >= static_cast<L>(Limits::denorm_min()) && std::abs(want.value) > want.size / 2) return never;
  const L at = std::isinf(got) ? std::copysign(std::ldexp(1.0L, Limits::max_exponent), static_cast<L>(got)) : static_cast<L>(got);
  int exponent = Limits::min_exponent;
  if (want.size > 0) std::frexp(want.size, &exponent);
  exponent = std::clamp(exponent, Limits::min_exponent, Limits::max_exponent);
  return static_cast<double>(std::abs(at - want.value) / std::ldexp(1.0L, exponent - Limits::digits));
}

/// The gradient of the sum of y; an absent one is 0.
inline Tensor derivative(const Tensor& y, const Tensor& x, GradOptions options) {
  options.allow_unused = true;
  Tensor d = y.requires_grad() ? grad({y}, {x}, {ones(y.shape(), y.dtype())}, options)[0] : Tensor();
  return d.defined() ? d : zeros(x.shape(), x.dtype());
}

}  // namespace heed::test
