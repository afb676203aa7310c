#include "factory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "raise.h"

namespace heed {
namespace detail {

template <class T>
T as_element(const OpName& op, const Number& n) {
  if constexpr (std::is_same_v<T, bool>) {
    if (n.real != 0 && n.real != 1) raise<DTypeError>(op, "a boolean element is 0 or 1: {}", n);
    return n.real != 0;
  } else if constexpr (std::is_same_v<T, Index>) {
    if (n.is_whole) return n.whole;
    if (n.real != std::trunc(n.real)) raise<DTypeError>(op, "an i64 element is a whole number: {}", n.real);  // NaN too
    if (!(n.real >= -0x1p63 && n.real < 0x1p63)) raise<DTypeError>(op, "out of the range of an i64 element: {}", n.real);
    return static_cast<Index>(n.real);
  } else {
    return n.is_whole ? static_cast<T>(n.whole) : static_cast<T>(n.real);
  }
}
template float as_element(const OpName&, const Number&);
template double as_element(const OpName&, const Number&);
template Index as_element(const OpName&, const Number&);
template bool as_element(const OpName&, const Number&);

namespace {

Tensor allocate_checked(const OpName& op, const Dims& shape, DType dtype) {
  checked_numel(op, shape, size_of(dtype));
  return make_empty(shape, dtype, op);
}

Tensor full(const OpName& op, const Dims& shape, const Number& value, DType dtype) {
  return dispatch(dtype, [&]<class T>() {
    const T element = as_element<T>(op, value);
    Tensor out = allocate_checked(op, shape, dtype);
    std::fill_n(out.mutable_data<T>(), out.numel(), element);
    return out;
  });
}

/// -1, 0 or 1: where a lies beside b, which is finite.
int compare(Index a, const Number& b) {
  if (b.is_whole) return (a > b.whole) - (a < b.whole);
  if (b.real >= 0x1p63) return -1;
  if (b.real < -0x1p63) return 1;
  const double below = std::floor(b.real);
  const Index whole = static_cast<Index>(below);
  return a != whole ? (a > whole) - (a < whole) : -(below < b.real);
}

/// The whole number next to `end` on the side of a start that lies before it.
Index last_before(const Number& end, bool rises) {
  if (end.is_whole) return end.whole - (rises ? 1 : -1);
  if (rises) return end.real >= 0x1p63 ? std::numeric_limits<Index>::max() : static_cast<Index>(std::ceil(end.real)) - 1;
  return end.real < -0x1p63 ? std::numeric_limits<Index>::min() : static_cast<Index>(std::floor(end.real)) + 1;
}

/// arange in i64. Unsigned, since differences and products may be larger than an Index on the way to a sum that is not.
Tensor whole_range(const Number& start, const Number& end, const Number& step) {
  const Index first = as_element<Index>("arange", start), stride = as_element<Index>("arange", step);
  const bool rises = stride > 0;
  const int order = compare(first, end);
  if (order == (rises ? 1 : -1)) raise<ShapeError>("arange: step {} leads away from end: start {}, end {}", step, start, end);
  const auto wrapping = [](Index x) { return static_cast<std::uint64_t>(x); };
  std::uint64_t count = 0;
  if (order != 0) {
    const std::uint64_t from = wrapping(first), last = wrapping(last_before(end, rises));
    const std::uint64_t steps = rises ? (last - from) / wrapping(stride) : (from - last) / (0 - wrapping(stride));
    if (steps >= std::uint64_t{1} << 62) raise<ShapeError>("arange: too many elements: start {}, end {}, step {}", start, end, step);
    count = steps + 1;
  }
  Tensor out = allocate_checked("arange", {static_cast<Index>(count)}, i64);
  Index* p = out.mutable_data<Index>();
  for (std::uint64_t i = 0; i < count; ++i) p[i] = static_cast<Index>(wrapping(first) + i * wrapping(stride));
  return out;
}

/// Walks braces of a known shape and says where one has another.
template <class T>
class BracesReader {
 public:
  BracesReader(const Dims& shape, T* out) : shape_(shape), out_(out) {}

  void read(const Nested& node) {
    const std::size_t depth = place_.size();
    if (depth == shape_.size()) {
      if (node.is_list()) raise<ShapeError>("tensor: ragged braces: {} is a list where a number is expected", place());
      *out_++ = as_element<T>("tensor", node.number());
      return;
    }
    const Index expected = shape_[depth];
    if (!node.is_list()) raise<ShapeError>("tensor: ragged braces: {} is a number where a list of {} is expected", place(), expected);
    const auto& children = node.children();
    if (static_cast<Index>(children.size()) != expected)
      raise<ShapeError>("tensor: ragged braces: {} has size {} where {} is expected", place(), children.size(), expected);
    for (std::size_t i = 0; i < children.size(); ++i) {
      place_.push_back(static_cast<Index>(i));
      read(children[i]);
      place_.pop_back();
    }
  }

 private:
  std::string place() const {
    std::string indices;
    for (Index i : place_) indices += fmt::format("[{}]", i);
    return indices.empty() ? "the whole" : indices;
  }

  const Dims& shape_;
  T* out_;
  Dims place_;  ///< indices on the way to the node: never more than the rank of the shape
};

}  // namespace
}  // namespace detail

Tensor empty(const Dims& shape, DType dtype) { return detail::allocate_checked("empty", shape, dtype); }

Tensor zeros(const Dims& shape, DType dtype) {
  Tensor out = detail::allocate_checked("zeros", shape, dtype);
  // Bytes of zeros are the zero of every dtype.
  detail::dispatch(dtype, [&]<class T>() { std::memset(out.mutable_data<T>(), 0, static_cast<std::size_t>(out.numel()) * sizeof(T)); });
  return out;
}

Tensor ones(const Dims& shape, DType dtype) { return detail::full("ones", shape, 1, dtype); }

Tensor full(const Dims& shape, const detail::Number& value, DType dtype) { return detail::full("full", shape, value, dtype); }

Tensor eye(Index n, DType dtype) {
  detail::checked_numel("eye", {n, n}, detail::size_of(dtype));
  Tensor out = zeros({n, n}, dtype);
  detail::dispatch(dtype, [&]<class T>() {
    T* p = out.mutable_data<T>();
    for (Index i = 0; i < n; ++i) p[i * (n + 1)] = T(1);
  });
  return out;
}

Tensor arange(const detail::Number& start, const detail::Number& end, const detail::Number& step, DType dtype) {
  using detail::raise;
  if (dtype == boolean) raise<DTypeError>("arange: takes f32, f64 or i64: boolean");
  if (!std::isfinite(start.real) || !std::isfinite(end.real) || !std::isfinite(step.real))
    raise<ShapeError>("arange: start, end and step must be finite: {}, {}, {}", start, end, step);
  if (step.real == 0) raise<ShapeError>("arange: step is 0: start {}, end {}", start, end);
  if (dtype == i64) return detail::whole_range(start, end, step);
  const double first = start.real, stride = step.real, quotient = (end.real - first) / stride;
  if (quotient < 0) raise<ShapeError>("arange: step {} leads away from end: start {}, end {}", step, start, end);
  if (!(quotient < 0x1p62)) raise<ShapeError>("arange: too many elements: start {}, end {}, step {}", start, end, step);
  Index count = static_cast<Index>(std::ceil(quotient));
  const auto is_before_end = [&](Index i) {
    const double value = first + static_cast<double>(i) * stride;
    return stride > 0 ? value < end.real : value > end.real;
  };
  if (count > 0 && !is_before_end(count - 1))
    --count;
  else if (is_before_end(count))
    ++count;

  Tensor out = detail::allocate_checked("arange", {count}, dtype);
  detail::dispatch_float(dtype, [&]<class T>() {
    T* p = out.mutable_data<T>();
    for (Index i = 0; i < count; ++i) p[i] = static_cast<T>(first + static_cast<double>(i) * stride);
  });
  return out;
}

Tensor arange(const detail::Number& end, DType dtype) { return arange(0, end, 1, dtype); }

Tensor tensor(const detail::Nested& values, DType dtype) {
  // The first element of every level gives the sizes; the reader holds the others against them.
  Dims shape;
  for (const detail::Nested* node = &values; node->is_list(); node = &node->children().front()) {
    shape.push_back(static_cast<Index>(node->children().size()));
    if (node->children().empty()) break;
  }
  return detail::dispatch(dtype, [&]<class T>() {
    Tensor out = detail::allocate_checked("tensor", shape, dtype);
    detail::BracesReader<T>(shape, out.mutable_data<T>()).read(values);
    return out;
  });
}

template <detail::ElementType T>
Tensor from_vector(const std::vector<T>& values, const Dims& shape) {
  const DType dtype = detail::dtype_of<T>();
  const Index count = detail::checked_numel("from_vector", shape, sizeof(T));
  if (static_cast<Index>(values.size()) != count)
    detail::raise<ShapeError>("from_vector: {} values for {} elements of shape {}", values.size(), count, shape);
  Tensor out = detail::make_empty(shape, dtype);
  std::copy(values.begin(), values.end(), out.mutable_data<T>());
  return out;
}
template Tensor from_vector(const std::vector<float>&, const Dims&);
template Tensor from_vector(const std::vector<double>&, const Dims&);
template Tensor from_vector(const std::vector<Index>&, const Dims&);
template Tensor from_vector(const std::vector<bool>&, const Dims&);

}  // namespace heed
