#include "layout.h"

#include <limits>
#include <numeric>
#include <string>

#include "raise.h"

namespace heed {

void Dims::rank_overflow() { throw ShapeError("a tensor has at most 8 dims"); }

namespace detail {

Index numel(const Dims& shape) { return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>()); }

Index checked_numel(const OpName& op, const Dims& shape, std::size_t element_size) {
  // A zero anywhere makes the tensor empty, however large the other sizes are, but strides must still be computable.
  Index nonzero = static_cast<Index>(element_size);
  bool is_empty = false, overflows = false;
  for (Index size : shape) {
    if (size < 0) raise<ShapeError>(op, "a size is negative: {}", shape);
    if (size == 0)
      is_empty = true;
    else
      overflows |= __builtin_mul_overflow(nonzero, size, &nonzero);
  }
  if (overflows) raise<ShapeError>(op, "more elements than can be addressed: {}", shape);
  return is_empty ? 0 : nonzero / static_cast<Index>(element_size);
}

Dims row_major_strides(const Dims& shape) {
  Dims strides = Dims::filled(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<Index>(shape[i], 1);
  return strides;
}

bool is_contiguous(const Layout& x) {
  Index expected = 1;
  for (std::size_t i = x.shape.size(); i-- > 0;) {
    if (x.shape[i] == 0) return true;
    if (x.shape[i] != 1 && x.strides[i] != expected)
      expected = -1;
    else if (expected >= 0)
      expected *= x.shape[i];
  }
  return expected >= 0;
}

bool overlaps_itself(const Layout& x) {
  // Sorted by stride, every dim must step over all that the smaller ones reach.
  std::vector<std::pair<Index, Index>> dims;  // stride, size
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    if (x.shape[i] == 0) return false;
    if (x.shape[i] > 1) dims.emplace_back(x.strides[i], x.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  Index reach = 0;
  for (auto [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

std::size_t wrap_dim(const OpName& op, Index dim, const Dims& shape) {
  const Index rank = std::max<Index>(static_cast<Index>(shape.size()), 1);
  if (dim < -rank || dim >= rank) raise<ShapeError>(op, "dim {} is out of range [{}, {}] of shape {}", dim, -rank, rank - 1, shape);
  return static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
}

Dims wrap_dims(const OpName& op, const Dims& dims, const Dims& shape) {
  Dims out;
  if (dims.empty()) {
    for (std::size_t i = 0; i < shape.size(); ++i) out.push_back(static_cast<Index>(i));
    return out;
  }
  for (Index dim : dims) {
    const Index wrapped = static_cast<Index>(wrap_dim(op, dim, shape));
    if (out.contains(wrapped)) raise<ShapeError>(op, "dim {} is named twice in {}", dim, dims);
    out.insert(static_cast<std::size_t>(std::lower_bound(out.begin(), out.end(), wrapped) - out.begin()), wrapped);
  }
  if (shape.empty()) out = {};  // the one dim that a 0-d tensor pretends to have
  return out;
}

Dims reduced_shape(const Dims& shape, const Dims& dims, bool keepdim) {
  Dims out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!dims.contains(static_cast<Index>(i)))
      out.push_back(shape[i]);
    else if (keepdim)
      out.push_back(1);
  }
  return out;
}

Dims broadcast_shapes(const OpName& op, const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims out = longer;
  const std::size_t shift = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    const Index x = longer[shift + i], y = shorter[i];
    if (x != y && x != 1 && y != 1) raise<ShapeError>(op, "shapes do not broadcast: {} and {}", a, b);
    out[shift + i] = x == 1 ? y : x;
  }
  return out;
}

bool broadcasts_to(const Dims& from, const Dims& to) {
  if (from.size() > to.size()) return false;
  const std::size_t shift = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i] != 1 && from[i] != to[shift + i]) return false;
  return true;
}

Layout expand(const OpName& op, const Layout& x, const Dims& shape) {
  Layout out{shape, Dims::filled(shape.size(), 0), x.offset};
  if (shape.size() < x.shape.size()) raise<ShapeError>(op, "{} does not expand to {}", x.shape, shape);
  const std::size_t shift = shape.size() - x.shape.size();
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    Index& size = out.shape[shift + i];
    if (size == -1) size = x.shape[i];
    if (size == x.shape[i])
      out.strides[shift + i] = size == 1 ? 0 : x.strides[i];
    else if (x.shape[i] != 1 || size < 0)
      raise<ShapeError>(op, "{} does not expand to {}", x.shape, shape);
  }
  for (std::size_t i = 0; i < shift; ++i)
    if (shape[i] < 0) raise<ShapeError>(op, "{} does not expand to {}: a new dim needs a size", x.shape, shape);
  return out;
}

Dims infer_shape(const OpName& op, const Dims& shape, Index numel) {
  Dims out = shape;
  std::optional<std::size_t> open;
  Index known = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const Index size = shape[i];
    if (size == -1 && !open)
      open = i;
    else if (size < 0)
      raise<ShapeError>(op, "{} elements do not fit shape {}: at most one size may be -1", numel, shape);
    else if (size != 0 && known > std::numeric_limits<Index>::max() / size)
      raise<ShapeError>(op, "{} elements do not fit shape {}", numel, shape);
    else
      known *= size;
  }
  if (open) {
    if (known == 0) raise<ShapeError>(op, "{} elements do not fit shape {}: with a size of 0, -1 could be anything", numel, shape);
    if (numel % known != 0) raise<ShapeError>(op, "{} elements do not fit shape {}", numel, shape);
    out[*open] = numel / known;
  } else if (known != numel) {
    raise<ShapeError>(op, "{} elements do not fit shape {}", numel, shape);
  }
  return out;
}

std::optional<Layout> reshape(const Layout& x, const Dims& shape) {
  if (is_contiguous(x)) return Layout{shape, row_major_strides(shape), x.offset};
  // Merge the old dims into runs that one stride walks, then cut each run into new dims.
  Layout out{shape, Dims::filled(shape.size(), 0), x.offset};
  std::size_t next = 0;  // first new dim that has no stride yet
  for (std::size_t i = 0; i < x.shape.size();) {
    Index run = x.shape[i], stride = x.strides[i];
    for (++i; i < x.shape.size() && (x.shape[i] == 1 || run == 1 || stride == x.shape[i] * x.strides[i]); ++i) {
      if (x.shape[i] != 1) stride = x.strides[i];
      run *= x.shape[i];
    }
    const std::size_t first = next;
    Index covered = 1;
    while (next < shape.size() && covered < run) covered *= shape[next++];
    if (covered != run) return std::nullopt;
    for (std::size_t j = next; j-- > first; stride *= shape[j]) out.strides[j] = stride;
  }
  return out;  // new dims left over have size 1, where the stride does not matter
}

Layout permute(const OpName& op, const Layout& x, const Dims& order) {
  Layout out{{}, {}, x.offset};
  Dims seen;
  for (Index dim : order) {
    const std::size_t d = wrap_dim(op, dim, x.shape);
    if (seen.contains(static_cast<Index>(d))) raise<ShapeError>(op, "dim {} is named twice in {}", dim, order);
    seen.push_back(static_cast<Index>(d));
    if (d < x.shape.size()) out.shape.push_back(x.shape[d]), out.strides.push_back(x.strides[d]);
  }
  if (out.shape.size() != x.shape.size()) raise<ShapeError>(op, "{} does not name every dim of shape {}", order, x.shape);
  return out;
}

Layout transpose(const Layout& x, std::size_t a, std::size_t b) {
  Layout out = x;
  if (x.shape.empty()) return out;
  std::swap(out.shape[a], out.shape[b]);
  std::swap(out.strides[a], out.strides[b]);
  return out;
}

Layout squeeze(const Layout& x, std::size_t dim) {
  Layout out = x;
  out.shape.erase(dim), out.strides.erase(dim);
  return out;
}

Layout unsqueeze(const Layout& x, std::size_t at) {
  Layout out = x;
  out.strides.insert(at, at < x.shape.size() ? x.shape[at] * x.strides[at] : 1);
  out.shape.insert(at, 1);
  return out;
}

Layout slice(const OpName& op, const Layout& x, std::size_t dim, Index start, Index end, Index step) {
  if (step <= 0) raise<ShapeError>(op, "step {} is not positive", step);
  if (x.shape.empty()) raise<ShapeError>(op, "a 0-d tensor has no dim to slice");
  Layout out = x;
  const Index size = x.shape[dim];
  const auto clamp = [size](Index i) { return std::clamp<Index>(i < 0 ? i + size : i, 0, size); };
  start = clamp(start), end = std::max(clamp(end), start);
  out.shape[dim] = (end - start) / step + ((end - start) % step != 0);
  out.strides[dim] = out.shape[dim] > 1 ? x.strides[dim] * step : x.strides[dim];
  if (out.shape[dim] > 0) out.offset += start * x.strides[dim];
  return out;
}

Layout select(const OpName& op, const Layout& x, std::size_t dim, Index i) {
  if (x.shape.empty()) raise<IndexError>(op, "a 0-d tensor has no element {}", i);
  const Index size = x.shape[dim];
  if (i < -size || i >= size) raise<IndexError>(op, "index {} is out of range for dim {} of shape {}", i, dim, x.shape);
  Layout out = squeeze(x, dim);
  out.offset += (i < 0 ? i + size : i) * x.strides[dim];
  return out;
}

void coalesce(Dims& shape, std::span<Dims> strides) {
  std::size_t last = 0;  // dims [0, last] of the result so far
  bool any = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool joins = any && std::all_of(strides.begin(), strides.end(), [&](const Dims& s) { return s[last] == s[i] * shape[i]; });
    if (any && !joins) ++last;
    shape[last] = joins ? shape[last] * shape[i] : shape[i];
    for (Dims& s : strides) s[last] = s[i];
    any = true;
  }
  const std::size_t rank = last + 1;
  if (!any) {
    shape = {1};
    for (Dims& s : strides) s = {0};
    return;
  }
  while (shape.size() > rank) shape.pop_back();
  for (Dims& s : strides)
    while (s.size() > rank) s.pop_back();
}

}  // namespace detail
}  // namespace heed
