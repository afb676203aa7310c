#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

#include "caller.h"
#include "dtype.h"

namespace heed::detail {

/// Any integer as an Index. One that is too large becomes the largest Index, which no tensor has: it is refused as out of range, where a cast would
/// make it a negative one, which counts from the end.
template <std::integral I>
constexpr Index to_index(I i) {
  if constexpr (std::is_unsigned_v<I> && sizeof(I) >= sizeof(Index))
    if (i > static_cast<I>(std::numeric_limits<Index>::max())) return std::numeric_limits<Index>::max();
  return static_cast<Index>(i);
}

/// a + b, or the Index nearest to it.
constexpr Index saturated_sum(Index a, Index b) {
  Index sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<Index>::min() : std::numeric_limits<Index>::max();
}

/// A C++ number as it was written: whole numbers stay exact.
struct Number {
  double real = 0;        ///< rounded, if it is a whole number that double cannot hold
  Index whole = 0;        ///< exact, if is_whole
  bool is_whole = false;  ///< written as an integer, and no more than an Index can hold

  template <class N>
  requires std::is_arithmetic_v<N> Number(N n) : real(static_cast<double>(n)) {
    if constexpr (std::is_integral_v<N>) {
      whole = static_cast<Index>(n);
      is_whole = static_cast<N>(whole) == n && (std::is_signed_v<N> || whole >= 0);  // an unsigned number may be too large
    }
  }
};

/// The number as an element of a tensor of T: float, double, Index or bool. DTypeError naming `op` when T cannot hold it: a fraction or a
/// number out of range for Index, anything but 0 and 1 for bool.
template <class T>
T as_element(const OpName& op, const Number&);
extern template float as_element(const OpName&, const Number&);
extern template double as_element(const OpName&, const Number&);
extern template Index as_element(const OpName&, const Number&);
extern template bool as_element(const OpName&, const Number&);

[[noreturn]] void cannot_hold(const char* op, const Number& value, const Number& least, const Number& largest);

/// An element as another C++ number: rounded to a float, cut off at the point to an integer. DTypeError naming `op` when an integer cannot hold it,
/// as it cannot NaN: the cast would be undefined, or another number.
template <class To, class From>
To from_element(const char* op, From x) {
  if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool> && !std::is_same_v<To, From> && !std::is_same_v<From, bool>) {
    using Limits = std::numeric_limits<To>;
    bool holds = false;
    if constexpr (std::is_floating_point_v<From>) {
      constexpr From end = static_cast<From>(To{1} << (Limits::digits - 1)) * 2, least = Limits::is_signed ? -end : From{0};
      holds = x < end && x - least > -1;  // what lies between is cut off to `least`
    } else {
      holds = static_cast<From>(static_cast<To>(x)) == x && (Limits::is_signed || x >= 0);
    }
    if (!holds) cannot_hold(op, x, Limits::min(), Limits::max());
  }
  return static_cast<To>(x);
}

}  // namespace heed::detail
