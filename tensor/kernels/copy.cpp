#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "elementwise.h"
#include "parallel.h"
#include "walk.h"

namespace heed::kernels {
namespace {

constexpr Index grain = 32768;  // elements for a thread

/// As a cast, except that what an Index cannot hold is the nearest one, and NaN is 0: the cast would be undefined.
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{};
  } else if constexpr (std::is_same_v<To, Index> && std::is_floating_point_v<From>) {
    constexpr From limit = static_cast<From>(0x1p63);
    if (x >= limit) return std::numeric_limits<Index>::max();
    if (x < -limit) return std::numeric_limits<Index>::min();
    return x == x ? static_cast<Index>(x) : 0;
  } else {
    return static_cast<To>(x);
  }
}

template <class To, class From>
void copy_row(To* out, const From* x, Index n) {
  if constexpr (std::is_same_v<To, From>)
    std::memcpy(out, x, static_cast<std::size_t>(n) * sizeof(To));
  else
    for (Index i = 0; i < n; ++i) out[i] = convert<To>(x[i]);
}

template <class To, class From>
void copy_row(To* out, Index out_step, const From* x, Index x_step, Index n) {
  if (out_step == 1 && x_step == 1 && n >= 8)
    copy_row(out, x, n);
  else if (x_step == 0 && out_step == 1)
    std::fill(out, out + n, convert<To>(*x));
  else
    for (Index i = 0; i < n; ++i) out[i * out_step] = convert<To>(x[i * x_step]);
}

/// The dims in the order that writes memory upwards.
void sort_by_output(Nest<2>& nest) {
  for (std::size_t i = 1; i < nest.shape.size(); ++i)
    for (std::size_t j = i; j > 0 && nest.strides[0][j - 1] < nest.strides[0][j]; --j) {
      std::swap(nest.shape[j - 1], nest.shape[j]);
      for (Dims& strides : nest.strides) std::swap(strides[j - 1], strides[j]);
    }
  detail::coalesce(nest.shape, nest.strides);
}

/// Where the input and the output lie along different dims: both are touched in squares that fit the first cache, through a buffer, since
/// the rows of a square often fall into the same cache sets.
template <class To, class From>
class Transposition {
 public:
  /// Element (i, j) of the innermost two loops is out[i * out_row + j], x[i + j * x_row], give or take other steps. The loop over i is
  /// dim `along_input` of the nest.
  Transposition(To* out, const From* x, const Nest<2>& nest, std::size_t along_input)
      : out_(out), x_(x), outer_(nest), rows_(nest.shape[along_input]), columns_(nest.shape.back()) {
    out_row_ = nest.strides[0][along_input], out_column_ = nest.strides[0].back();
    x_row_ = nest.strides[1][along_input], x_column_ = nest.strides[1].back();
    outer_.shape[along_input] = 1, outer_.shape.back() = 1;
    row_tiles_ = (rows_ + side - 1) / side, column_tiles_ = (columns_ + side - 1) / side;
  }

  Index tiles() const { return count_of(outer_.shape) * row_tiles_ * column_tiles_; }

  void run(Index begin, Index end) const {
    for (Index t = begin; t < end; ++t) {
      const Index in_matrix = t % (row_tiles_ * column_tiles_);
      const Rows<2> outer(outer_, t / (row_tiles_ * column_tiles_), t / (row_tiles_ * column_tiles_) + 1);
      tile(outer.offset(0), outer.offset(1), in_matrix / column_tiles_ * side, in_matrix % column_tiles_ * side);
    }
  }

  static constexpr Index side = sizeof(To) <= 4 ? 64 : 32;

 private:
  void tile(Index out_offset, Index x_offset, Index row, Index column) const {
    To buffer[side][side + 64 / sizeof(To)];
    const Index rows = std::min(side, rows_ - row), columns = std::min(side, columns_ - column);
    const From* x = x_ + x_offset + row * x_row_ + column * x_column_;
    for (Index j = 0; j < columns; ++j)
      for (Index i = 0; i < rows; ++i) buffer[i][j] = convert<To>(x[i * x_row_ + j * x_column_]);
    To* out = out_ + out_offset + row * out_row_ + column * out_column_;
    for (Index i = 0; i < rows; ++i) copy_row(out + i * out_row_, out_column_, buffer[i], Index{1}, columns);
  }

  To* out_;
  const From* x_;
  Nest<2> outer_;
  Index rows_, columns_, out_row_, out_column_, x_row_, x_column_, row_tiles_, column_tiles_;
};

/// The dim along which the input lies closest together, when the innermost loop, which suits the output, is not the one.
std::size_t dim_along_input(const Nest<2>& nest) {
  const std::size_t inner = nest.shape.size() - 1;
  std::size_t best = inner;
  for (std::size_t d = 0; d < inner; ++d) {
    const Index stride = nest.strides[1][d];
    if (stride != 0 && stride < nest.strides[1][best] && nest.shape[d] >= 4) best = d;
  }
  return best;
}

}  // namespace

template <class To, class From>
void copy(To* out, const Dims& out_strides, Strided<From> x, const Dims& shape) {
  const Index n = count_of(shape);
  if (n == 0) return;
  if (is_row_major(x.strides, shape) && is_row_major(out_strides, shape)) {
    parallel_for(n, grain, [=](Index begin, Index end) { copy_row(out + begin, x.data + begin, end - begin); });
    return;
  }
  Nest<2> nest(shape, Strided<To>{out, out_strides}, x);
  sort_by_output(nest);
  const std::size_t inner = nest.shape.size() - 1, along_input = dim_along_input(nest);
  if (along_input != inner) {
    const Transposition<To, From> transposition(out, x.data, nest, along_input);
    parallel_for(transposition.tiles(), grain / (transposition.side * transposition.side),
                 [&](Index begin, Index end) { transposition.run(begin, end); });
    return;
  }
  const Index out_step = nest.strides[0][inner], x_step = nest.strides[1][inner];
  parallel_for(n, grain, [&](Index begin, Index end) {
    for (Rows<2> rows(nest, begin, end); rows; rows.next()) copy_row(out + rows.offset(0), out_step, x.data + rows.offset(1), x_step, rows.count());
  });
}

template void copy(float*, const Dims&, Strided<float>, const Dims&);
template void copy(float*, const Dims&, Strided<double>, const Dims&);
template void copy(float*, const Dims&, Strided<Index>, const Dims&);
template void copy(float*, const Dims&, Strided<bool>, const Dims&);
template void copy(double*, const Dims&, Strided<float>, const Dims&);
template void copy(double*, const Dims&, Strided<double>, const Dims&);
template void copy(double*, const Dims&, Strided<Index>, const Dims&);
template void copy(double*, const Dims&, Strided<bool>, const Dims&);
template void copy(Index*, const Dims&, Strided<float>, const Dims&);
template void copy(Index*, const Dims&, Strided<double>, const Dims&);
template void copy(Index*, const Dims&, Strided<Index>, const Dims&);
template void copy(Index*, const Dims&, Strided<bool>, const Dims&);
template void copy(bool*, const Dims&, Strided<float>, const Dims&);
template void copy(bool*, const Dims&, Strided<double>, const Dims&);
template void copy(bool*, const Dims&, Strided<Index>, const Dims&);
template void copy(bool*, const Dims&, Strided<bool>, const Dims&);

template <class T>
void fill(T* out, T value, Index n) {
  parallel_for(n, grain, [=](Index begin, Index end) { std::fill(out + begin, out + end, value); });
}

template void fill(float*, float, Index);
template void fill(double*, double, Index);
template void fill(Index*, Index, Index);
template void fill(bool*, bool, Index);

}  // namespace heed::kernels
