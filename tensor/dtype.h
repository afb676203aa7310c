#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <type_traits>
#include <utility>

namespace heed {

/// Sizes, strides, ids and the elements of i64 tensors.
using Index = std::int64_t;

/// Element types. Nothing is promoted silently: an op on two of them is a DTypeError.
enum class DType : std::uint8_t {
  f32,     ///< float
  f64,     ///< double
  i64,     ///< Index: ids, targets, positions
  boolean  ///< bool: masks, one byte each
};
inline constexpr DType f32 = DType::f32;          ///< float, the default of every factory
inline constexpr DType f64 = DType::f64;          ///< double, in which gradients are checked
inline constexpr DType i64 = DType::i64;          ///< Index, never differentiated
inline constexpr DType boolean = DType::boolean;  ///< bool, what comparisons give

/// "f32", "f64", "i64", "boolean"
std::ostream& operator<<(std::ostream&, DType);

namespace detail {

constexpr const char* name(DType dtype) {
  constexpr const char* names[] = {"f32", "f64", "i64", "boolean"};
  return names[static_cast<int>(dtype)];
}
constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t sizes[] = {4, 8, 8, 1};
  return sizes[static_cast<int>(dtype)];
}
constexpr bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

/// The DType of a C++ element type: one of float, double, Index, bool.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, Index>)
    return DType::i64;
  else {
    static_assert(std::is_same_v<T, bool>, "elements are float, double, Index (std::int64_t) or bool");
    return DType::boolean;
  }
}

/// Calls `f.operator()<T>()` with the element type of `dtype`.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    case DType::i64: return f.template operator()<Index>();
    case DType::boolean: break;
  }
  return f.template operator()<bool>();
}

/// As `dispatch`, for code that exists for f32 and f64 only; the caller has checked `is_float(dtype)`.
template <class F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  if (dtype == DType::f64) return f.template operator()<double>();
  return f.template operator()<float>();
}

}  // namespace detail
}  // namespace heed
