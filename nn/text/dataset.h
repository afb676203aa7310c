#pragma once

#include <vector>

#include "../../tensor/tensor.h"

namespace heed::nn {

/// Inputs and targets of a language model, i64 (B, T): y[b][t] is the token that follows x[b][t].
struct TokenBatch {
  Tensor x;  ///< what the model reads
  Tensor y;  ///< what it is to predict
};

/// What is held out, and how batches are drawn.
struct TokenDatasetOptions {
  double held_out = 0.1;   ///< the part at the end that is never trained on, 0 <= held_out < 1
  std::uint64_t seed = 0;  ///< of the batches
};

/// A stream of tokens: the front to learn from, the tail held out to judge on.
class TokenDataset {
 public:
  /// Error for a part that is not in [0, 1), and for no tokens to learn from.
  explicit TokenDataset(std::vector<Index> tokens, const TokenDatasetOptions& = {});
  /// Where the cut was made before: as two texts that were encoded each by itself.
  static TokenDataset from_parts(std::vector<Index> train, const std::vector<Index>& held_out, std::uint64_t seed = 0);

  Index size() const { return static_cast<Index>(tokens_.size()); }  ///< tokens in all
  Index train_size() const { return train_size_; }                   ///< tokens to learn from
  Index held_out_size() const { return size() - train_size_; }       ///< tokens to judge on
  const std::vector<Index>& tokens() const { return tokens_; }       ///< the stream, the training part first

  /// B windows of T tokens from the training part, each beginning anywhere with equal chance. A function of the seed and `step` only, so that a run
  /// that is resumed at a step goes on with the batches it would have had. Error when the part has no T + 1 tokens.
  TokenBatch batch(Index step, Index B, Index T) const;

  /// Windows that together predict every held-out token once, from the T / 2 tokens before it at least: they overlap by half, and targets that the
  /// window before has had are `ignored` in y. The first ones look back into the training part.
  Index held_out_windows(Index T) const;
  /// Some of those, by number. Error when the training part has no T tokens to look back to or the whole has no T + 1, IndexError for a window that
  /// does not exist.
  TokenBatch held_out(const std::vector<Index>& windows, Index T) const;

  /// A target that does not count: the default of cross_entropy's ignore_index.
  static constexpr Index ignored = -100;

 private:
  TokenDataset(std::vector<Index> tokens, Index train_size, std::uint64_t seed);
  TokenBatch windows_at(const std::vector<Index>& starts, Index T) const;

  std::vector<Index> tokens_;
  Index train_size_;
  std::uint64_t seed_;
};

/// Bits a token that a model of single tokens, and one of pairs of neighbors, reach on the held-out part: counted on the training part, one added to
/// each count. Vocabulary is the number of different tokens there may be (IndexError for one outside of it). NaN without held-out tokens.
double unigram_bits(const TokenDataset&, Index vocabulary);
double bigram_bits(const TokenDataset&, Index vocabulary);  ///< as above, of pairs

}  // namespace heed::nn
