#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <vector>

#include "caller.h"
#include "dtype.h"
#include "number.h"

namespace heed {

/// A short list of sizes, strides or dim numbers, held inline. Rank is at most 8 (ShapeError otherwise).
class Dims {
 public:
  static constexpr std::size_t max_rank = 8;  ///< dims of a tensor at most

  Dims() = default;  ///< of a tensor without dims
  /// `zeros({2, 3})`
  Dims(std::initializer_list<Index> values) : Dims(std::span<const Index>(values.begin(), values.size())) {}
  /// Sizes that are known at run time only.
  Dims(const std::vector<Index>& values) : Dims(std::span<const Index>(values)) {}
  /// A part of other sizes.
  explicit Dims(std::span<const Index> values) {
    for (Index v : values) push_back(v);
  }
  /// One dim: `zeros(3)`, `sum(x, -1)`.
  template <std::integral I>
  requires(!std::same_as<I, bool>) Dims(I value) : size_(1) { values_[0] = detail::to_index(value); }
  /// One value for every dim.
  static Dims filled(std::size_t rank, Index value) {
    Dims d;
    while (d.size() < rank) d.push_back(value);
    return d;
  }

  std::size_t size() const { return size_; }                                              ///< the rank
  bool empty() const { return size_ == 0; }                                               ///< no dims: one element
  Index operator[](std::size_t i) const { return values_[i]; }                            ///< from the front; unchecked
  Index& operator[](std::size_t i) { return values_[i]; }                                 ///< from the front; unchecked
  Index back() const { return values_[size_ - 1u]; }                                      ///< of the innermost dim; unchecked
  Index& back() { return values_[size_ - 1u]; }                                           ///< of the innermost dim; unchecked
  const Index* begin() const { return values_.data(); }                                   ///< the outermost dim
  const Index* end() const { return values_.data() + size_; }                             ///< behind the innermost dim
  Index* begin() { return values_.data(); }                                               ///< the outermost dim
  Index* end() { return values_.data() + size_; }                                         ///< behind the innermost dim
  bool contains(Index value) const { return std::find(begin(), end(), value) != end(); }  ///< in any dim

  /// A new innermost dim. ShapeError beyond `max_rank`.
  void push_back(Index value) {
    if (size_ == max_rank) rank_overflow();
    values_[size_++] = value;
  }
  void pop_back() { --size_; }  ///< drops the innermost dim; unchecked
  /// A new dim before dim `at`. ShapeError beyond `max_rank`.
  void insert(std::size_t at, Index value) {
    push_back(value);
    std::rotate(begin() + at, end() - 1, end());
  }
  /// Drops dim `at`; unchecked.
  void erase(std::size_t at) {
    std::copy(begin() + at + 1, end(), begin() + at);
    --size_;
  }

  /// The same rank and the same values.
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  [[noreturn]] static void rank_overflow();

  std::array<Index, max_rank> values_{};
  std::uint8_t size_ = 0;
};

/// "(2, 3)", "(3,)", "()": as in Python.
std::ostream& operator<<(std::ostream&, const Dims&);

namespace detail {

/// Where the elements of a tensor lie in its storage: element (i, j, ...) at offset + i * strides[0] + j * strides[1] + ...
/// In elements, not bytes. A stride of 0 repeats an element (broadcast). Strides are never negative.
struct Layout {
  Dims shape, strides;
  Index offset = 0;
};

// Pure functions: no data, no tensors. `op` is what an error text begins and ends with.

Index numel(const Dims& shape);
/// As numel, for sizes from outside: ShapeError when one is negative or the byte count overflows.
Index checked_numel(const OpName& op, const Dims& shape, std::size_t element_size);
Dims row_major_strides(const Dims& shape);
/// Row-major without gaps; strides of size-1 dims do not matter, and an empty layout is contiguous.
bool is_contiguous(const Layout&);
/// Whether two indices may share an element (stride 0 in a dim of size > 1, or interleaved strides). Never misses an overlap.
bool overlaps_itself(const Layout&);

/// `dim` counted from the end when negative. ShapeError "op: dim 2 is out of range [-2, 1] of shape (3, 4)".
/// A shape () takes 0 and -1.
std::size_t wrap_dim(const OpName& op, Index dim, const Dims& shape);
/// Each dim wrapped, sorted, without repeats (ShapeError otherwise); an empty list means all dims.
Dims wrap_dims(const OpName& op, const Dims& dims, const Dims& shape);
/// The shape after summing over `dims` (from wrap_dims).
Dims reduced_shape(const Dims& shape, const Dims& dims, bool keepdim);

/// NumPy's rule: aligned right, sizes equal or 1. ShapeError names both shapes.
Dims broadcast_shapes(const OpName& op, const Dims& a, const Dims& b);
bool broadcasts_to(const Dims& from, const Dims& to);
/// The layout seen as `shape` by repeating size-1 and missing dims with stride 0. -1 keeps a size.
Layout expand(const OpName& op, const Layout&, const Dims& shape);

/// Puts a number where `shape` has one -1. ShapeError quotes the element count and the shape as asked for.
Dims infer_shape(const OpName& op, const Dims& shape, Index numel);
/// The layout seen under another shape of equal numel, or nothing where only a copy can do that.
std::optional<Layout> reshape(const Layout&, const Dims& shape);
Layout permute(const OpName& op, const Layout&, const Dims& order);
Layout transpose(const Layout&, std::size_t a, std::size_t b);
Layout squeeze(const Layout&, std::size_t dim);
Layout unsqueeze(const Layout&, std::size_t at);
/// Python's slice rules: negative counts from the end, out of range is clamped, step > 0.
Layout slice(const OpName& op, const Layout&, std::size_t dim, Index start, Index end, Index step);
/// IndexError when `i` is out of range; negative counts from the end.
Layout select(const OpName& op, const Layout&, std::size_t dim, Index i);

/// Joins neighboring dims that all layouts walk in one stride and drops size-1 dims; all have the same shape.
/// What is left has rank >= 1. Kernels loop over the result.
void coalesce(Dims& shape, std::span<Dims> strides);

}  // namespace detail
}  // namespace heed
