#include <cmath>
#include <numeric>

#include "../../tensor/kernels/cross_entropy.h"
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
Index check(const OpName& op, const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  detail::require_float(op, logits);
  detail::require_dtype(op, targets, i64);
  Dims expected = logits.shape();
  if (expected.empty() || expected.size() > 2) detail::raise<ShapeError>(op, "wants logits of (N, C) or (C): shape {}", logits.shape());
  const Index classes = expected.back();
  expected.pop_back();
  if (targets.shape() != expected) detail::raise<ShapeError>(op, "targets {} do not fit logits {}", targets.shape(), logits.shape());
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    detail::raise<Error>(op, "label_smoothing is not in [0, 1]: {}", options.label_smoothing);
  Index counted = 0;
  for (Index target : targets.to_vector<Index>()) {
    if (target == options.ignore_index) continue;
    if (target < 0 || target >= classes) detail::raise<IndexError>(op, "target {} is out of range for {} classes", target, classes);
    ++counted;
  }
  return counted;
}

/// The same function composed from ops: for derivatives of derivatives, and what tests hold the kernel against.
Tensor composed(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options, Index counted) {
  const Index classes = logits.size(-1);
  const Tensor shares = target_shares(targets, classes, options, logits.dtype());
  const Tensor counts = ne(reshape(targets, {targets.numel(), 1}), options.ignore_index);
  // Whatever stands in a row that does not count, even NaN, has no part in anything.
  const Tensor log_p = log_softmax(where(counts, reshape(logits, {targets.numel(), classes}), 0), -1);
  // A log-probability of -inf must not meet a share of 0.
  const Tensor terms = where(ne(shares, 0), log_p, 0) * shares;
  if (options.reduction == Reduction::none) return reshape(sum(terms, 1), targets.shape());
  const Tensor total = sum(terms);
  return options.reduction == Reduction::mean && counted > 0 ? total / counted : total;
}

}  // namespace

// With p = softmax(logits) and w the target's distribution: loss = -sum w log p, dlogits = (p sum w - w) dloss
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options, Caller caller) {
  const OpName op{"cross_entropy", caller};
  const Index counted = check(op, logits, targets, options), classes = logits.size(-1), rows = targets.numel();
  const bool by_row = options.reduction == Reduction::none;
  const double factor = options.reduction == Reduction::mean && counted > 0 ? 1 / static_cast<double>(counted) : 1;
  const Tensor x = detail::contiguous_data(logits), t = detail::contiguous_data(targets);
  Tensor losses = detail::make_empty(targets.shape(), logits.dtype(), op), stats = detail::make_empty({rows, 2}, logits.dtype(), op);
  Tensor y = by_row ? losses : detail::make_empty({}, logits.dtype(), op);
  const auto shares = [options](const Tensor& classes_of_rows) {
    return kernels::CrossEntropyTargets{classes_of_rows.data<Index>(), options.ignore_index, options.label_smoothing};
  };
  detail::dispatch_float(logits.dtype(), [&]<class T>() {
    T* loss = losses.mutable_data<T>();
    const auto total_of = [&](double times) {
      kernels::cross_entropy<T>(loss, stats.mutable_data<T>(), x.data<T>(), shares(t), times, rows, classes);
      return std::accumulate(loss, loss + rows, 0.0);
    };
    double total = total_of(1);
    if (by_row) return;
    // The losses of single rows may overflow where their mean does not.
    total = std::isfinite(total) ? total * factor : total_of(factor);
    if (options.reduction == Reduction::mean && counted == 0) total = std::nan("");  // the mean of nothing; gradients are 0 nevertheless
    *y.mutable_data<T>() = static_cast<T>(total);
  });
  return record(op, std::move(y), logits,
                [logits = saved(logits), targets = saved(t), stats = saved(stats), options, shares, counted, factor, rows, classes, by_row](
                    const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  const Tensor value = logits.get(), which = targets.get();
                  if (ctx.creates_graph())
                    return detail::differentiate_twin(ctx, {value}, dy,
                                                      [&](const std::vector<Tensor>& slots) { return composed(slots[0], which, options, counted); });
                  const Tensor from = detail::contiguous_data(value), up = detail::contiguous_data(dy);
                  Tensor dx = detail::make_empty(value.shape(), value.dtype());
                  detail::dispatch_float(value.dtype(), [&]<class T>() {
                    kernels::cross_entropy_backward<T>(dx.mutable_data<T>(), from.data<T>(), stats.get().data<T>(), shares(which), up.data<T>(),
                                                       by_row ? 1 : 0, factor, rows, classes);
                  });
                  return {dx};
                });
}

// With d = a - b: da = 2 d dloss, over n for a mean, and db = -da
Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction, Caller caller) {
  const OpName op{"mse_loss", caller};
  detail::require_float(op, a);
  detail::require_same_dtype(op, a, b);
  if (a.shape() != b.shape()) detail::raise<ShapeError>(op, "shapes differ: {} and {}", a.shape(), b.shape());
  Tensor d, y;
  {
    const detail::Unseen inside;
    d = a - b;
    y = reduction == Reduction::none  ? square(d)
        : reduction == Reduction::sum ? detail::of_squares(d, [](const Tensor& squares) { return sum(squares); })
                                      : detail::of_squares(d, [](const Tensor& squares) { return mean(squares); });
  }
  const double share = reduction == Reduction::mean ? 1 / static_cast<double>(a.numel()) : 1;
  return record(op, y, a, b, [a = saved(a), b = saved(b), d = saved(d), y = saved(y), share](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    Tensor da;
    if (!detail::all_finite(y.get()))
      da = (0.5 * a.get() - 0.5 * b.get()) * (dy * (4 * share));  // a - b may overflow
    else
      da = (ctx.creates_graph() ? a.get() - b.get() : d.get()) * (dy * (2 * share));
    return {da, ctx.needs(1) ? -da : Tensor()};
  });
}

}  // namespace heed
