#include "mask.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <sstream>

#include "../tensor/raise.h"
#include "grad_mode.h"
#include "op.h"
#include "ops.h"

namespace heed {

Mask::Mask(const Tensor& keep) {
  if (keep.impl("Mask").dtype != boolean)
    detail::raise<DTypeError>("Mask: a {} tensor could be meant either way: Mask::keep(t) drops where it is 0, Mask::bias(t) adds it to the scores",
                              keep.dtype());
  keeps_ = {keep};
}

Mask Mask::causal() {
  Mask m;
  m.is_causal_ = true;
  return m;
}
Mask Mask::causal(Index offset) {
  Mask m = causal();
  m.offset_ = offset;
  return m;
}
Mask Mask::keep(const Tensor& t) {
  if (t.impl("Mask::keep").dtype == boolean) return Mask(t);
  const NoGrad off;
  if (const Tensor other = ne(t, 0) & ne(t, 1); any(other).item<bool>()) {
    const std::vector<bool> found = other.to_vector<bool>();
    const auto at = static_cast<std::size_t>(std::find(found.begin(), found.end(), true) - found.begin());
    const detail::Number wrong = detail::dispatch(t.dtype(), [&]<class T>() -> detail::Number { return T(t.to_vector<T>()[at]); });
    detail::raise<Error>("Mask::keep: wants 0 and 1, found {}: numbers that are added to the scores are a Mask::bias", wrong);
  }
  return Mask(ne(t, 0));
}
Mask Mask::bias(const Tensor& t) {
  if (!detail::is_float(t.impl("Mask::bias").dtype)) detail::raise<DTypeError>("Mask::bias: wants f32 or f64, not {}", t.dtype());
  Mask m;
  m.biases_ = {t};
  return m;
}
Mask Mask::lengths(std::vector<Index> lengths) {
  if (lengths.empty()) detail::raise<ShapeError>("Mask::lengths: no lengths");
  for (Index n : lengths)
    if (n < 0) detail::raise<ShapeError>("Mask::lengths: a length is negative: {}", n);
  Mask m;
  m.lengths_ = std::move(lengths);
  return m;
}
Mask Mask::window(Index n) {
  if (n < 1) detail::raise<ShapeError>("Mask::window: n is not positive: {}", n);
  Mask m;
  m.window_ = n;
  return m;
}
Mask Mask::alibi(Index heads) {
  if (heads < 1) detail::raise<ShapeError>("Mask::alibi: heads is not positive: {}", heads);
  Mask m;
  m.alibi_heads_ = heads;
  return m;
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask m = a;
  m.is_causal_ |= b.is_causal_;
  if (a.is_causal_ && b.is_causal_ && a.offset_ != b.offset_) detail::raise<Error>("Mask &: two offsets: {} and {}", to_string(a), to_string(b));
  if (!m.offset_) m.offset_ = b.offset_;
  if (b.window_) m.window_ = m.window_ ? std::min(*m.window_, *b.window_) : b.window_;
  if (a.alibi_heads_ && b.alibi_heads_) detail::raise<Error>("Mask &: alibi twice");
  if (b.alibi_heads_) m.alibi_heads_ = b.alibi_heads_;
  if (m.lengths_.empty()) {
    m.lengths_ = b.lengths_;
  } else if (!b.lengths_.empty()) {
    if (a.lengths_.size() != b.lengths_.size())
      detail::raise<Error>("Mask &: lengths for {} and for {} batch entries", a.lengths_.size(), b.lengths_.size());
    for (std::size_t i = 0; i < m.lengths_.size(); ++i) m.lengths_[i] = std::min(m.lengths_[i], b.lengths_[i]);
  }
  m.keeps_.insert(m.keeps_.end(), b.keeps_.begin(), b.keeps_.end());
  m.biases_.insert(m.biases_.end(), b.biases_.begin(), b.biases_.end());
  return m;
}

Mask Mask::at(Index offset, Caller caller) const {
  if (offset_ && *offset_ != offset)
    detail::raise<Error>(OpName("Mask", caller), "the queries stand at {}, but the mask says {}", offset, to_string(*this));
  Mask m = *this;
  m.offset_ = offset;
  return m;
}

std::string to_string(const Mask& m) {
  std::vector<std::string> parts;
  if (m.is_causal_) parts.push_back(m.offset_ ? fmt::format("causal({})", *m.offset_) : "causal");
  if (m.window_) parts.push_back(fmt::format("window({})", *m.window_));
  if (m.alibi_heads_) parts.push_back(fmt::format("alibi({} heads)", *m.alibi_heads_));
  if (!m.lengths_.empty()) parts.push_back(fmt::format("lengths({})", fmt::join(m.lengths_, ", ")));
  for (const Tensor& t : m.keeps_) parts.push_back(fmt::format("keep{}", t.shape()));
  for (const Tensor& t : m.biases_) parts.push_back(fmt::format("bias{}", t.shape()));
  std::string text = parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, " & "));
  if (m.offset_ && !m.is_causal_) text += fmt::format(", queries from {} on", *m.offset_);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Mask& mask) { return out << to_string(mask); }

namespace detail {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Where position alone forbids: causal and window, (Tq, Tk).
Tensor allowed_by_position(const Mask& mask, Index Tq, Index Tk) {
  Tensor allowed = make_empty({Tq, Tk}, boolean);
  bool* p = allowed.mutable_data<bool>();
  const auto [offset, window] = offset_and_window(mask);
  for (Index i = 0; i < Tq; ++i)
    for (Index j = 0; j < Tk; ++j) *p++ = (!mask.is_causal() || j <= i + offset) && (window == 0 || std::abs(i + offset - j) < window);
  return allowed;
}

Tensor alibi_bias(const Mask& mask, Index Tq, Index Tk, DType dtype) {
  Tensor distance = make_empty({Tq, Tk}, f64);
  double* p = distance.mutable_data<double>();
  const Index offset = offset_and_window(mask).offset;
  for (Index i = 0; i < Tq; ++i)
    for (Index j = 0; j < Tk; ++j) *p++ = static_cast<double>(std::abs(i + offset - j));
  const Unseen inside;
  const Tensor slopes = from_vector(alibi_slopes(*mask.alibi_heads()), {*mask.alibi_heads(), 1, 1});
  return (slopes * distance).to(dtype);
}

/// (B, 1, ..., 1, Tk) for scores of the given rank.
Tensor allowed_by_length(const Mask& mask, std::size_t rank, Index Tk) {
  const Index batch = static_cast<Index>(mask.key_lengths().size());
  Dims column = Dims::filled(rank, 1);
  column[0] = batch;
  const Unseen inside;
  return lt(arange(Tk, i64), from_vector(mask.key_lengths(), column));
}

}  // namespace

OffsetAndWindow offset_and_window(const Mask& mask) {
  constexpr Index far = Index{1} << 60;
  const Index given = mask.offset().value_or(0), offset = std::clamp(given, -far, far);
  if (!mask.window()) return {offset, 0};
  // The distance to a key is smaller by as much as the offset is nearer, and so is the window; one of 1 is too narrow for any key then.
  const Index nearer = offset < 0 ? offset - given : given - offset;
  return {offset, std::clamp(*mask.window() - nearer, Index{1}, 4 * far)};
}

std::vector<double> alibi_slopes(Index heads) {
  // Heads beyond a power of two take every other slope of the next power, as the paper's authors do.
  std::vector<double> slopes;
  Index power = 1;
  while (power * 2 <= heads) power *= 2;
  for (Index h = 1; h <= power; ++h) slopes.push_back(-std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power)));
  for (Index h = 1; static_cast<Index>(slopes.size()) < heads; h += 2)
    slopes.push_back(-std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(2 * power)));
  return slopes;
}

void check_mask(const OpName& op, const Mask& mask, const Dims& shape) {
  const Index Tq = shape[shape.size() - 2], Tk = shape.back();
  if (mask.is_causal() && !mask.offset() && Tq != Tk)
    raise<ShapeError>(op, "causal wants as many queries as keys, got Tq={}, Tk={}; say where the queries stand with Mask::causal(offset)", Tq, Tk);
  for (const auto* tensors : {&mask.keeps(), &mask.biases()})
    for (const Tensor& t : *tensors)
      if (!broadcasts_to(t.shape(), shape)) raise<ShapeError>(op, "the mask {} does not broadcast to the scores {}", t.shape(), shape);
  if (!mask.key_lengths().empty() && (shape.size() < 3 || static_cast<Index>(mask.key_lengths().size()) != shape[0]))
    raise<ShapeError>(op, "{} lengths for scores {}, whose first dim is the batch", mask.key_lengths().size(), shape);
  for (Index n : mask.key_lengths())
    if (n > Tk) raise<ShapeError>(op, "a length of {} for Tk={} keys", n, Tk);
  if (mask.alibi_heads() && (shape.size() < 3 || (*mask.alibi_heads() != shape[shape.size() - 3] && *mask.alibi_heads() != 1)))
    raise<ShapeError>(op, "alibi for {} heads over scores {}, whose heads stand third from the end", *mask.alibi_heads(), shape);
}

DenseMask dense_mask(const OpName& op, const Mask& mask, const Dims& shape, DType dtype) {
  check_mask(op, mask, shape);
  const Index Tq = shape[shape.size() - 2], Tk = shape.back();
  DenseMask out;
  const auto allow = [&](const Tensor& t) { out.allowed = out.allowed.defined() ? out.allowed & Operand(t, op.caller) : t; };
  const auto add = [&](const Tensor& t) { out.added = out.added.defined() ? out.added + Operand(t, op.caller) : t; };
  if (mask.is_causal() || mask.window()) allow(allowed_by_position(mask, Tq, Tk));
  if (!mask.key_lengths().empty()) allow(allowed_by_length(mask, shape.size(), Tk));
  for (const Tensor& t : mask.keeps()) allow(t);
  for (const Tensor& t : mask.biases()) {
    if (t.dtype() != dtype)
      raise<DTypeError>(op, "dtypes differ: the bias is {}, the scores {}; convert the bias with .to({})", t.dtype(), dtype, dtype);
    add(t);
  }
  if (mask.alibi_heads()) add(alibi_bias(mask, Tq, Tk, dtype));
  return out;
}

}  // namespace detail

Tensor Mask::to_tensor(Index Tq, Index Tk, DType dtype) const {
  Dims shape{Tq, Tk};
  const auto widen = [&](const Dims& other) { shape = detail::broadcast_shapes("Mask::to_tensor", shape, other); };
  for (const Tensor& t : keeps_) widen(t.shape());
  for (const Tensor& t : biases_) widen(t.shape());
  if (alibi_heads_) widen({*alibi_heads_, 1, 1});
  if (!lengths_.empty()) {
    if (shape.size() < 4 && (shape.size() == 2 || alibi_heads_)) shape.insert(0, 1);
    if (shape[0] == 1) shape[0] = static_cast<Index>(lengths_.size());
  }
  const detail::DenseMask dense = detail::dense_mask("Mask::to_tensor", *this, shape, dtype);
  Tensor out = dense.added.defined() ? dense.added : zeros({}, dtype);
  if (dense.allowed.defined()) out = where(dense.allowed, out, -detail::infinity);
  return expand(out, shape).contiguous();
}

}  // namespace heed
