#pragma once

#include <concepts>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "tensor.h"

namespace heed {

namespace detail {

/// A C++ number as it was written: whole numbers stay exact.
struct Number {
  double real = 0;
  Index whole = 0;
  bool is_whole = false;

  template <class N>
  requires std::is_arithmetic_v<N> Number(N n) : real(static_cast<double>(n)) {
    if constexpr (std::is_integral_v<N>) whole = static_cast<Index>(n), is_whole = true;
  }
};

/// A number or braces around numbers or braces.
class Nested {
 public:
  template <class N>
  requires std::is_arithmetic_v<N> Nested(N n) : number_(n) {}
  Nested(std::initializer_list<Nested> children) : is_list_(true), children_(children) {}

  bool is_list() const { return is_list_; }
  const Number& number() const { return number_; }
  const std::vector<Nested>& children() const { return children_; }

 private:
  Number number_{0};
  bool is_list_ = false;
  std::vector<Nested> children_;
};

}  // namespace detail

// Leaves without history. ShapeError for negative or overflowing sizes.

Tensor empty(const Dims& shape, DType = f32);  ///< uninitialized
Tensor zeros(const Dims& shape, DType = f32);
Tensor ones(const Dims& shape, DType = f32);
/// DTypeError for a value that an i64 or boolean tensor cannot hold.
Tensor full(const Dims& shape, double value, DType = f32);
Tensor eye(Index n, DType = f32);
/// start, start + step, ... up to but without `end`: ceil((end - start) / step) elements.
Tensor arange(double start, double end, double step = 1, DType = f32);
/// `tensor({{1, 2}, {3, 4}})` is 2x2, `tensor({1})` has one dim, `tensor(1)` none. ShapeError for ragged braces, DTypeError for a
/// fractional number in an i64 tensor.
Tensor tensor(const detail::Nested& values, DType = f32);
/// The dtype follows from T: float, double, Index or bool.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Dims& shape);
extern template Tensor from_vector(const std::vector<float>&, const Dims&);
extern template Tensor from_vector(const std::vector<double>&, const Dims&);
extern template Tensor from_vector(const std::vector<Index>&, const Dims&);
extern template Tensor from_vector(const std::vector<bool>&, const Dims&);

}  // namespace heed
