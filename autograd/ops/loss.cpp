#include <cmath>

#include "forward.h"

namespace heed {
namespace {

/// Per row: minus the share of each class in the target. A row that is ignored has none.
Tensor target_shares(const Tensor& targets, Index classes, const CrossEntropyOptions& options, DType dtype) {
  const Tensor flat = detail::contiguous_data(targets);
  const Index* target = flat.data<Index>();
  Tensor shares = zeros({flat.numel(), classes}, dtype);
  detail::dispatch_float(dtype, [&]<class T>() {
    T* row = shares.mutable_data<T>();
    const T spread = static_cast<T>(options.label_smoothing / static_cast<double>(classes)), rest = static_cast<T>(1 - options.label_smoothing);
    for (Index i = 0; i < flat.numel(); ++i, row += classes) {
      if (target[i] == options.ignore_index) continue;
      if (options.label_smoothing != 0) std::fill_n(row, classes, -spread);
      row[target[i]] -= rest;
    }
  });
  return shares;
}

/// Returns how many targets count.
Index check(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  detail::require_float("cross_entropy", logits);
  detail::require_dtype("cross_entropy", targets, i64);
  Dims expected = logits.shape();
  if (expected.empty() || expected.size() > 2) detail::raise<ShapeError>("cross_entropy: wants logits of (N, C) or (C): shape {}", logits.shape());
  const Index classes = expected.back();
  expected.pop_back();
  if (targets.shape() != expected) detail::raise<ShapeError>("cross_entropy: targets {} do not fit logits {}", targets.shape(), logits.shape());
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    detail::raise<Error>("cross_entropy: label_smoothing is not in [0, 1]: {}", options.label_smoothing);
  Index counted = 0;
  for (Index target : targets.to_vector<Index>()) {
    if (target == options.ignore_index) continue;
    if (target < 0 || target >= classes) detail::raise<IndexError>("cross_entropy: target {} is out of range for {} classes", target, classes);
    ++counted;
  }
  return counted;
}

}  // namespace

// With p = softmax(logits) and w the target's distribution: loss = -sum w log p, dlogits = (p sum w - w) dloss
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options, Caller caller) {
  const Index counted = check(logits, targets, options), classes = logits.size(-1);
  const Tensor shares = target_shares(targets, classes, options, logits.dtype());
  const Tensor log_p = log_softmax(reshape(logits, {targets.numel(), classes}, caller), -1, caller);
  // A log-probability of -inf must not meet a share of 0.
  const Tensor terms = where(ne(shares, Operand(0, caller)), Operand(log_p, caller), Operand(0, caller)) * Operand(shares, caller);
  if (options.reduction == Reduction::none) return reshape(sum(terms, 1, false, caller), targets.shape(), caller);
  const Tensor total = sum(terms, {}, false, caller);
  if (options.reduction == Reduction::sum) return total;
  if (counted > 0) return total / Operand(counted, caller);
  return total + Operand(std::nan(""), caller);  // the mean of nothing; the gradients of the terms stay 0
}

Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction, Caller caller) {
  detail::require_same_dtype("mse_loss", a, b);
  if (a.shape() != b.shape()) detail::raise<ShapeError>("mse_loss: shapes differ: {} and {}", a.shape(), b.shape());
  const Tensor squares = square(a - Operand(b, caller), caller);
  if (reduction == Reduction::none) return squares;
  return reduction == Reduction::sum ? sum(squares, {}, false, caller) : mean(squares, {}, false, caller);
}

}  // namespace heed
