#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "../tensor/tensor.h"

namespace heed {

/// Which keys a query may attend to, and what is added to its scores. Masks combine with `&`: a key must pass all of them, biases add up.
/// Query i stands at position i + offset among the keys; `causal(offset)` sets the offset for causal, window and alibi alike.
class Mask {
 public:
  /// Everything may be attended to.
  Mask() = default;
  /// `Mask::keep` of a boolean tensor. DTypeError for other dtypes, which could be meant either way.
  Mask(const Tensor& keep);

  static Mask none() { return {}; }  ///< the default, by name
  /// Keys j <= i; wants as many queries as keys, and says so otherwise.
  static Mask causal();
  /// Keys j <= i + offset, for any numbers of queries and keys: the last query of a cache of `offset` earlier keys.
  static Mask causal(Index offset);
  /// True (for numbers: not 0) may be attended to; broadcast right-aligned to (..., Tq, Tk).
  static Mask keep(const Tensor&);
  /// Added to the scaled scores; -inf forbids; broadcast as keep. Gets a gradient.
  static Mask bias(const Tensor&);
  /// Keys j < lengths[b] of batch entry b, the first dim of the scores.
  static Mask lengths(std::vector<Index>);
  /// Keys with |i + offset - j| < n.
  static Mask window(Index n);
  /// Adds -slope_h |i + offset - j| for head h, the dim before the last two, with slopes that fall as 2^(-8 h / heads): Press, Smith and Lewis,
  /// "Train short, test long", 2022.
  static Mask alibi(Index heads);

  /// Error where both name different offsets, lengths for different batches, or alibi.
  friend Mask operator&(const Mask&, const Mask&);

  /// The same, with the first query at position `offset`: what a cache of `offset` earlier keys supplies. Error where the mask names another offset.
  Mask at(Index offset, Caller = Caller::here()) const;

  /// The additive matrix (..., Tq, Tk): 0, -inf, and biases.
  Tensor to_tensor(Index Tq, Index Tk, DType = f32) const;

  /// "causal(2) & window(4)"
  friend std::string to_string(const Mask&);

  // What kernels read.

  /// Whether everything may be attended to and nothing is added.
  bool is_none() const { return !is_causal_ && !window_ && !alibi_heads_ && lengths_.empty() && keeps_.empty() && biases_.empty(); }
  bool is_causal() const { return is_causal_; }                       ///< with or without an offset
  std::optional<Index> offset() const { return offset_; }             ///< where the first query stands, if it was said
  std::optional<Index> window() const { return window_; }             ///< the narrowest of those joined
  std::optional<Index> alibi_heads() const { return alibi_heads_; }   ///< as given to `alibi`
  const std::vector<Index>& key_lengths() const { return lengths_; }  ///< by batch entry; empty without
  const std::vector<Tensor>& keeps() const { return keeps_; }         ///< boolean, all must allow
  const std::vector<Tensor>& biases() const { return biases_; }       ///< added up

 private:
  bool is_causal_ = false;
  std::optional<Index> offset_, window_, alibi_heads_;
  std::vector<Index> lengths_;
  std::vector<Tensor> keeps_, biases_;
};

/// As to_string.
std::ostream& operator<<(std::ostream&, const Mask&);

namespace detail {

/// The mask over scores of `shape` (..., Tq, Tk) as op operands: where attending is allowed (boolean, undefined when everywhere), and what is added
/// (undefined when nothing is), each broadcasting to the shape. Checks the mask against the shape; `op` begins and ends the error texts.
struct DenseMask {
  Tensor allowed, added;
};
DenseMask dense_mask(const OpName& op, const Mask&, const Dims& shape, DType);
void check_mask(const OpName& op, const Mask&, const Dims& shape);
/// Where query 0 stands and how wide the window is (0: no window): as in the mask, or nearer by the same distance where they are so large that sums
/// with numbers of queries and keys could overflow. The same pairs are allowed.
struct OffsetAndWindow {
  Index offset, window;
};
OffsetAndWindow offset_and_window(const Mask&);
/// -slope_h of every head, (heads).
std::vector<double> alibi_slopes(Index heads);

}  // namespace detail
}  // namespace heed
