#include "../attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../../tensor/parallel.h"
#include "attention_parts.h"

namespace heed {
namespace {

Dims batch_of(const Tensor& t) {
  Dims d = t.shape();
  d.pop_back(), d.pop_back();
  return d;
}

/// Checks everything before anything is computed.
detail::AttentionCall checked(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, Caller caller) {
  const OpName op{"scaled_dot_product_attention", caller};
  detail::require_float(op, q);
  for (const Tensor* t : {&k, &v}) detail::require_same_dtype(op, q, *t);
  if (q.dim() < 2 || k.dim() < 2 || v.dim() < 2)
    detail::raise<ShapeError>(op, "wants (..., T, d): Q {}, K {}, V {}", q.shape(), k.shape(), v.shape());
  if (q.size(-1) != k.size(-1)) detail::raise<ShapeError>(op, "query and key sizes differ: Q d_k={}, K d_k={}", q.size(-1), k.size(-1));
  if (k.size(-2) != v.size(-2)) detail::raise<ShapeError>(op, "keys and values differ in number: K Tk={}, V Tk={}", k.size(-2), v.size(-2));
  if (!(options.dropout_p >= 0 && options.dropout_p <= 1)) detail::raise<Error>(op, "dropout_p is not in [0, 1]: {}", options.dropout_p);
  Dims scores = detail::broadcast_shapes(op, batch_of(q), batch_of(k));
  detail::broadcast_shapes(op, scores, batch_of(v));
  scores.push_back(q.size(-2)), scores.push_back(k.size(-2));
  detail::check_mask(op, options.mask, scores);
  for (const Tensor& bias : options.mask.biases())
    if (bias.dtype() != q.dtype())
      detail::raise<DTypeError>(op, "dtypes differ: the bias is {}, the scores {}; convert the bias with .to({})", bias.dtype(), q.dtype(),
                                q.dtype());
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<Index>(q.size(-1), 1))));
  return {op, q, k, v, options, scale, scores};
}

struct Choice {
  Kernel kernel;
  const char* reason;
};
Choice choose(const AttentionOptions& options) {
  if (options.kernel != Kernel::automatic) return {options.kernel, "asked for"};
  if (options.need_weights) return {Kernel::composed, "the weights are asked for, and it has them"};
  return {Kernel::tiled, "no weights are asked for: no matrix of Tq x Tk is needed"};
}

/// What became of the rows of weights that overflow may have spoiled.
struct Spoiled {
  bool nan = false;   ///< there is a row of NaN
  bool zero = false;  ///< there is a row of zeros
  explicit Spoiled(const Tensor& weights) {
    const Tensor dense = detail::contiguous_data(weights);
    const Index n = dense.size(-1);
    detail::dispatch_float(dense.dtype(), [&]<class T>() {
      const T* row = dense.data<T>();
      for (const T* end = row + dense.numel(); row != end; row += n) {  // few rows begin with a 0
        nan = nan || std::isnan(row[0]);
        zero = zero || std::all_of(row, row + n, [](T w) { return w == 0; });
      }
    });
  }
};

/// The same mask, with what is added finite: an infinite score plus a bias of -inf would be NaN, but -inf forbids whatever the score.
detail::DenseMask strict(const detail::DenseMask& mask, Caller caller) {
  const Tensor forbidden = eq(mask.added, Operand(-std::numeric_limits<double>::infinity(), caller)), open = !Located(forbidden, caller);
  return {mask.allowed.defined() ? mask.allowed & Operand(open, caller) : open, masked_fill(mask.added, forbidden, Operand(0, caller))};
}

/// 1, and NaN for rows of weights that are all 0 though the mask lets the query attend to a key: there all scores have overflowed to -inf. Undefined
/// without such rows.
Tensor overflow_factor(const Tensor& weights, const detail::DenseMask& mask) {
  const detail::Unseen inside;
  const Tensor open = mask.added.defined() ? strict(mask, {}).allowed : mask.allowed;
  Tensor lost = eq(max(weights, -1, true), 0);
  if (open.defined()) lost = lost & any(expand(open, weights.shape()), -1, true);
  if (!any(lost).item<bool>()) return {};
  return where(lost, full({}, std::numeric_limits<double>::quiet_NaN(), weights.dtype()), 1);
}

}  // namespace

Attention detail::composed_attention(const AttentionCall& call) {
  const Caller caller = call.op.caller;
  const auto weights_under = [&](const DenseMask& mask) {
    Tensor scores = matmul(call.q * Operand(call.scale, caller), transpose(call.k, -2, -1, caller), caller);
    if (mask.added.defined()) scores = scores + Operand(mask.added, caller);
    if (mask.allowed.defined())
      scores = masked_fill(scores, !Located(mask.allowed, caller), Operand(-std::numeric_limits<double>::infinity(), caller));
    return softmax_or_zero(scores, caller);
  };
  DenseMask mask = dense_mask(call.op, call.options.mask, call.scores, call.q.dtype());
  Tensor weights = weights_under(mask);
  Spoiled spoiled(weights);
  if (spoiled.nan && mask.added.defined()) mask = strict(mask, caller), weights = weights_under(mask), spoiled = Spoiled(weights);
  if (spoiled.zero)
    if (const Tensor factor = overflow_factor(weights, mask); factor.defined()) weights = weights * Operand(factor, caller);
  Tensor kept = weights;
  if (call.options.training && call.options.dropout_p > 0) {
    // Every output drops weights of its own, also where only v makes the batch longer.
    Dims wide = broadcast_shapes(call.op, batch_of(weights), batch_of(call.v));
    wide.push_back(weights.size(-2)), wide.push_back(weights.size(-1));
    kept = dropout(expand(weights, wide, caller), call.options.dropout_p, true, caller);
  }
  return {matmul(kept, call.v, caller), call.options.need_weights ? weights : Tensor()};
}

double detail::allowed_pairs(const Mask& mask, const Dims& scores) {
  const Index Tq = scores[scores.size() - 2], Tk = scores.back();
  const OffsetAndWindow at = offset_and_window(mask);
  const auto pairs_below = [&](Index length) {
    if (!mask.is_causal() && !mask.window()) return static_cast<double>(Tq) * static_cast<double>(length);
    double pairs = 0;
    for (Index i = 0; i < Tq; ++i) {
      Index begin = 0, end = length;
      if (mask.is_causal()) end = std::min(end, i + at.offset + 1);
      if (at.window > 0) begin = std::max(begin, i + at.offset - at.window + 1), end = std::min(end, i + at.offset + at.window);
      pairs += static_cast<double>(std::max<Index>(end - begin, 0));
    }
    return pairs;
  };
  Dims batch = scores;
  batch.pop_back(), batch.pop_back();
  const double entries = static_cast<double>(numel(batch));
  if (mask.key_lengths().empty()) return entries * pairs_below(Tk);
  double pairs = 0;
  for (Index length : mask.key_lengths()) pairs += pairs_below(length);
  return pairs * entries / static_cast<double>(mask.key_lengths().size());
}

namespace {

Attention attend(const detail::AttentionCall& call) {
  return choose(call.options).kernel == Kernel::tiled ? detail::tiled_attention(call) : detail::composed_attention(call);
}

/// All weights dropped: 0 in value and gradients, whoever may attend to whom. Operands that are dropped as a whole lead there through either kernel,
/// also from infinities, which weights of 0 would turn into NaN. The weights that are returned are those before.
Attention attend_to_nothing(const detail::AttentionCall& call) {
  Attention out;
  AttentionOptions options = call.options;
  if (options.need_weights) {
    options.dropout_p = 0;
    out.weights = attend({call.op, call.q, call.k, call.v, options, call.scale, call.scores}).weights;
  }
  const auto dropped = [&](const Tensor& t) { return dropout(t, 1, true, call.op.caller); };
  options.dropout_p = 1, options.need_weights = false;
  options.mask = {};
  for (const Tensor& bias : call.options.mask.biases()) options.mask = options.mask & Mask::bias(dropped(bias));
  out.output = attend({call.op, dropped(call.q), dropped(call.k), dropped(call.v), options, call.scale, call.scores}).output;
  return out;
}

}  // namespace

Attention scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, Caller caller) {
  const detail::AttentionCall call = checked(q, k, v, options, caller);
  return options.training && options.dropout_p == 1 ? attend_to_nothing(call) : attend(call);
}

AttentionPlan attention_plan(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const detail::AttentionCall call = checked(q, k, v, options, {});
  const Choice choice = choose(options);
  const double pairs = detail::allowed_pairs(options.mask, call.scores), cells = static_cast<double>(detail::numel(call.scores));
  const double element = static_cast<double>(detail::size_of(q.dtype())), rows = cells / static_cast<double>(std::max<Index>(k.size(-2), 1));
  AttentionPlan plan{choice.kernel, choice.reason, 2 * pairs * static_cast<double>(q.size(-1) + v.size(-1)), 0};
  if (choice.kernel == Kernel::composed) {
    const bool masked = options.mask.is_causal() || options.mask.window() || !options.mask.key_lengths().empty() || !options.mask.keeps().empty();
    const double matrices =
        1 + (options.need_weights ? 0 : 1) + (masked ? 1 : 0) + (options.mask.biases().empty() && !options.mask.alibi_heads() ? 0 : 1);
    plan.bytes = cells * (matrices * element + (masked ? 1 : 0)) + static_cast<double>(q.numel()) * element;
  } else {
    constexpr double tile_bytes = 512 * 1024;
    plan.bytes = 2 * rows * element + tile_bytes * detail::num_threads();
  }
  return plan;
}

}  // namespace heed
