#pragma once

#include <utility>

#include "../tensor/tensor.h"

namespace heed::nn {

/// Keys and values of the positions that a layer has seen, so that later queries attend to them without computing them again.
///
/// One for each attention layer and each run of sequences; empty at first, then it takes chunks of any length. Works without recording only (NoGrad):
/// what it holds has no history. Memory grows by doubling. Copies are deep: each goes on by itself.
class KVCache {
 public:
  KVCache() = default;                                ///< empty, of no sizes yet
  KVCache(const KVCache&);                            ///< deep: for a second way to go on
  KVCache(KVCache&& other) noexcept { swap(other); }  ///< leaves the other empty
  /// As the constructors.
  KVCache& operator=(KVCache other) noexcept {
    swap(other);
    return *this;
  }
  ~KVCache() = default;

  /// Positions held: where the next query stands.
  Index length() const { return length_; }
  /// Positions that fit before memory grows.
  Index capacity() const { return keys_.defined() ? keys_.size(-2) : 0; }

  /// Adds keys (..., T, d_k) and values (..., T, d_v) and returns all of them, as views that stay valid until `truncate` or `clear`. Batch, heads and
  /// sizes are those of the first chunk (ShapeError), so is the dtype (DTypeError); GradError while ops are recorded. After an error nothing is
  /// changed.
  std::pair<Tensor, Tensor> append(const Tensor& keys, const Tensor& values, Caller = Caller::here());
  /// Forgets the positions from `length` on. IndexError unless 0 <= length <= length().
  void truncate(Index length);
  /// Forgets everything, the sizes too.
  void clear() { *this = KVCache(); }

  Tensor keys() const;    ///< all of them, (..., length, d_k); undefined while nothing was added
  Tensor values() const;  ///< all of them, (..., length, d_v); undefined while nothing was added

 private:
  void swap(KVCache& other) noexcept;

  Tensor keys_, values_;  ///< (..., capacity, d)
  Index length_ = 0;
};

}  // namespace heed::nn

namespace heed::detail {

/// GradError while ops are recorded: a cache would hand on values without their history.
void require_no_recording(const OpName& op);

}  // namespace heed::detail
