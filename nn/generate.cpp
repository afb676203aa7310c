#include "generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../autograd/grad_mode.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed::nn {
namespace {

void check(const OpName& op, const Tensor& prompt, const GenerateOptions& o) {
  if (prompt.impl(op).dtype != i64) detail::raise<DTypeError>(op, "wants tokens of i64 in the prompt, not {}", prompt.dtype());
  if (prompt.dim() < 1 || prompt.dim() > 2 || prompt.size(-1) < 1)
    detail::raise<ShapeError>(op, "wants a prompt (T) or (B, T) of at least one token: shape {}", prompt.shape());
  if (o.max_new_tokens < 0) detail::raise<Error>(op, "max_new_tokens is negative: {}", o.max_new_tokens);
  if (!(o.temperature >= 0 && std::isfinite(o.temperature))) detail::raise<Error>(op, "temperature is negative or not finite: {}", o.temperature);
  if (o.top_k < 0) detail::raise<Error>(op, "top_k is negative: {}", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) detail::raise<Error>(op, "top_p is not in (0, 1]: {}", o.top_p);
}

/// Chooses tokens by their logits.
class Sampler {
 public:
  Sampler(const OpName& op, const GenerateOptions& o) : op_(op), options_(o) {
    if (o.seed) own_ = {*o.seed, 0};
  }

  /// logits (B, vocab) -> (B)
  Tensor operator()(const Tensor& logits) {
    const Index B = logits.size(0);
    const std::vector<double> all = logits.to_vector<double>();
    const std::size_t size = static_cast<std::size_t>(logits.size(1));
    const bool draws = options_.temperature > 0;
    const RngState from = draws ? reserve(B) : RngState();
    std::vector<Index> tokens;
    for (Index b = 0; b < B; ++b) {
      const double* row = all.data() + static_cast<std::size_t>(b) * size;
      const double* largest = std::max_element(row, row + size);
      if (!std::isfinite(*largest) || std::any_of(row, row + size, [](double v) { return std::isnan(v); }))
        detail::raise<Error>(op_, "the model gives NaN or no finite logit for sequence {}", b);
      tokens.push_back(draws ? drawn(row, size, *largest, detail::uniform_at(from.seed, from.offset + static_cast<std::uint64_t>(b)))
                             : largest - row);
    }
    return from_vector(tokens, {B});
  }

 private:
  RngState reserve(Index count) {
    if (!options_.seed) return detail::reserve_random(static_cast<std::uint64_t>(count));
    const RngState from = own_;
    own_.offset += static_cast<std::uint64_t>(count);
    return from;
  }

  /// The token at which the sum of the probabilities passes u.
  Index drawn(const double* logits, std::size_t size, double largest, double u) {
    ids_.resize(size);
    std::iota(ids_.begin(), ids_.end(), Index{0});
    const auto before = [logits](Index a, Index b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
    if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < size) {
      std::partial_sort(ids_.begin(), ids_.begin() + options_.top_k, ids_.end(), before);
      ids_.resize(static_cast<std::size_t>(options_.top_k));
    } else if (options_.top_p < 1) {
      std::sort(ids_.begin(), ids_.end(), before);
    }
    weights_.clear();
    double total = 0;
    for (Index id : ids_) {
      weights_.push_back(std::exp((logits[id] - largest) / options_.temperature));
      total += weights_.back();
    }
    if (options_.top_p < 1) {
      double sum = 0;
      std::size_t kept = 0;
      while (kept < weights_.size() && sum < options_.top_p * total) sum += weights_[kept++];
      weights_.resize(kept);
      total = sum;
    }
    double left = u * total;
    std::size_t last = 0;  // rounding may leave a little behind the last one
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] == 0) continue;
      last = i;
      if ((left -= weights_[i]) < 0) break;
    }
    return ids_[last];
  }

  const OpName op_;
  const GenerateOptions& options_;
  RngState own_;
  std::vector<Index> ids_;
  std::vector<double> weights_;
};

}  // namespace

Tensor generate(const GPT& given, const Tensor& prompt, const GenerateOptions& options, Caller caller) {
  const OpName op{"generate", caller};
  check(op, prompt, options);
  const NoGrad off;
  GPT model(given);  // the same tensors under a training flag of its own
  train(model, false);
  const bool one = prompt.dim() == 1;
  Tensor idx = one ? unsqueeze(prompt, 0) : prompt;
  const Index block_size = model.config().block_size;
  Sampler sample(op, options);
  std::vector<KVCache> caches;
  for (Index i = 0; i < options.max_new_tokens; ++i) {
    const Index T = idx.size(1);
    const bool cached = options.use_cache && T <= block_size;
    const Index seen = cached && !caches.empty() ? caches.front().length() : std::max<Index>(0, T - block_size);
    const Tensor hidden = model.transformer(slice(idx, 1, seen, T), cached ? &caches : nullptr, caller);
    const Tensor tokens = sample(model.lm_head(select(hidden, 1, -1), caller));
    idx = cat({idx, unsqueeze(tokens, 1)}, 1);
    if (options.on_token && !options.on_token(one ? select(tokens, 0, 0) : tokens)) break;
  }
  return (one ? squeeze(idx, 0) : idx).clone();
}

}  // namespace heed::nn
