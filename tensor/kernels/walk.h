#pragma once

// Private: how the elementwise kernels loop over strided operands.

#include <array>
#include <cstddef>
#include <utility>

#include "../layout.h"
#include "../storage.h"
#include "elementwise.h"

namespace heed::kernels {

inline Index count_of(const Dims& shape) {
  Index n = 1;
  for (Index size : shape) n *= size;
  return n;
}

/// Whether `strides` walk `shape` row by row without gaps.
inline bool is_row_major(const Dims& strides, const Dims& shape) {
  Index step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

/// Whether all of `shape` is one element.
inline bool is_one_element(const Dims& strides, const Dims& shape) {
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1 && strides[i] != 0) return false;
  return true;
}

/// A loop nest over the common shape of N operands, with as few dims as they allow.
template <std::size_t N>
struct Nest {
  Dims shape;
  std::array<Dims, N> strides;

  template <class... T>
  explicit Nest(const Dims& common, const Strided<T>&... operands) : shape(common), strides{operands.strides...} {
    detail::coalesce(shape, strides);
  }
};

/// The innermost rows of elements [begin, end) of a nest in row-major order, one at a time; the first and last may be parts of rows.
template <std::size_t N>
class Rows {
 public:
  Rows(const Nest<N>& nest, Index begin, Index end) : nest_(nest), left_(end - begin) {
    for (std::size_t d = nest.shape.size(); begin > 0 && d-- > 0; begin /= nest.shape[d]) move(d, begin % nest.shape[d]);
    measure();
  }

  explicit operator bool() const { return left_ > 0; }
  Index count() const { return count_; }
  Index offset(std::size_t operand) const { return offset_[operand]; }

  void next() {
    left_ -= count_;
    if (left_ <= 0) return;
    std::size_t d = nest_.shape.size() - 1;
    move(d, count_);
    // Not at the end, so that an outer dim is left to count up.
    while (at_[d] == nest_.shape[d]) {
      move(d, -at_[d]);
      move(--d, 1);
    }
    measure();
  }

 private:
  void move(std::size_t d, Index by) {
    at_[d] += by;
    for (std::size_t k = 0; k < N; ++k) offset_[k] += by * nest_.strides[k][d];
  }
  void measure() { count_ = std::min(left_, nest_.shape.back() - at_[nest_.shape.size() - 1]); }

  const Nest<N>& nest_;
  Index left_, count_ = 0;
  std::array<Index, Dims::max_rank> at_{};
  std::array<Index, N> offset_{};
};

/// Memory for a kernel to work in, uninitialized.
template <class T>
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(Index n) : bytes_(static_cast<std::size_t>(n) * sizeof(T)), data_(static_cast<T*>(detail::allocate(bytes_))) {}
  Scratch(Scratch&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Scratch() {
    if (data_) detail::deallocate(data_, bytes_);
  }
  T* data() const { return data_; }

 private:
  std::size_t bytes_ = 0;
  T* data_ = nullptr;
};

/// An operand whose innermost loop steps by 0 or 1, so that kernels know no other case: others are copied into row-major order first,
/// by the copy that takes care of the caches. Dims that repeat stay so.
template <class T>
class Walkable {
 public:
  /// `x` is kept as a reference.
  Walkable(const Strided<T>& x, const Dims& shape) : operand_(&x) {
    std::size_t inner = shape.size();
    while (inner > 0 && shape[inner - 1] == 1) --inner;
    if (inner > 0 && x.strides[inner - 1] > 1) copy_in(x, shape);
  }
  Walkable(const Walkable&) = delete;
  Walkable& operator=(const Walkable&) = delete;

  const Strided<T>& operator*() const { return *operand_; }

 private:
  void copy_in(const Strided<T>& x, const Dims& shape) {
    Dims compact = shape;
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (x.strides[d] == 0) compact[d] = 1;
    Dims strides = detail::row_major_strides(compact);
    elements_ = Scratch<T>(count_of(compact));
    copy(elements_.data(), strides, x, compact);
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (x.strides[d] == 0) strides[d] = 0;
    copied_ = {elements_.data(), strides};
    operand_ = &copied_;
  }

  const Strided<T>* operand_;
  Strided<T> copied_;
  Scratch<T> elements_;
};

}  // namespace heed::kernels
