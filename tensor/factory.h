#pragma once

#include <concepts>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "number.h"
#include "tensor.h"

namespace heed {

namespace detail {

/// What tensors hold: f32, f64, i64 and boolean.
template <class T>
concept ElementType = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Index> || std::same_as<T, bool>;

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
Tensor zeros(const Dims& shape, DType = f32);  ///< false, in a boolean tensor
Tensor ones(const Dims& shape, DType = f32);   ///< true, in a boolean tensor
/// One value everywhere, of any kind of number: whole ones are exact in i64. DTypeError for a value that an i64 or boolean tensor cannot hold.
Tensor full(const Dims& shape, const detail::Number& value, DType = f32);
Tensor eye(Index n, DType = f32);  ///< (n, n): 1 on the diagonal, 0 elsewhere
/// start, start + step, ... up to but without `end`: ceil((end - start) / step) elements, corrected by one where that quotient is rounded
/// across a whole number, so that `end` never appears. Element i is start + i * step in double; in i64 count and elements are exact, whatever their
/// size. ShapeError for a step of 0 or one that leads away from `end`, and for NaN or infinities; DTypeError for boolean, and for a start or step
/// that i64 cannot hold.
Tensor arange(const detail::Number& start, const detail::Number& end, const detail::Number& step = 1, DType = f32);
/// 0, 1, ... up to but without `end`: `arange(ids.size(1), i64)`. Errors as above.
Tensor arange(const detail::Number& end, DType = f32);
/// `tensor({{1, 2}, {3, 4}})` is 2x2, `tensor({1})` has one dim, `tensor(1)` none, `tensor({})` is empty: shape (0,). ShapeError for ragged
/// braces, DTypeError for a number that the dtype cannot hold: a fraction in i64, anything but 0 and 1 in boolean.
Tensor tensor(const detail::Nested& values, DType = f32);
/// The dtype follows from T: float, double, Index or bool. ShapeError when the count of values is not that of the shape.
template <detail::ElementType T>
Tensor from_vector(const std::vector<T>& values, const Dims& shape);
extern template Tensor from_vector(const std::vector<float>&, const Dims&);
extern template Tensor from_vector(const std::vector<double>&, const Dims&);
extern template Tensor from_vector(const std::vector<Index>&, const Dims&);
extern template Tensor from_vector(const std::vector<bool>&, const Dims&);

}  // namespace heed
