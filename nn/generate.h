#pragma once

#include <functional>
#include <optional>

#include "gpt.h"

namespace heed::nn {

/// How tokens are chosen, and how many.
struct GenerateOptions {
  Index max_new_tokens = 100;              ///< fewer where `on_token` ends the run
  double temperature = 1;                  ///< logits are divided by it; 0 always takes the largest, the first of equal ones
  Index top_k = 0;                         ///< choose among the k largest only; 0: among all
  double top_p = 1;                        ///< choose among the fewest tokens whose probabilities, largest first, sum to at least p (after top_k)
  std::optional<std::uint64_t> seed = {};  ///< of random numbers of its own; absent: the process's (`manual_seed`)
  bool use_cache = true;                   ///< keep keys and values instead of computing them for every token again
  /// Called with each new token, shaped as the prompt without T, before the next is computed; returning false ends the run.
  std::function<bool(const Tensor& tokens)> on_token = {};
};

/// The prompt (T) or (B, T), i64, followed by up to max_new_tokens tokens, each drawn from softmax(logits / temperature) of the model.
///
/// The model sees a sliding window: the last block_size tokens, the first of which stands at position 0, with and without the cache alike, also when
/// the prompt is longer. Up to block_size a token costs one row with the cache and the whole sequence without. Past it every token of the window
/// stands at another position than before, so that nothing in a cache holds any longer and both compute the whole window for each token.
///
/// Runs without recording and without dropout, whatever the mode of the model, which stays as it is. Draws one random number for each token when
/// temperature > 0. ShapeError for an empty prompt and other ranks, Error for options without sense and when the model gives NaN or no
/// finite logit.
Tensor generate(const GPT& model, const Tensor& prompt, const GenerateOptions& = {}, Caller = Caller::here());

}  // namespace heed::nn
