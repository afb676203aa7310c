#pragma once

#include <string>

#include "options.h"

/// Characters of a text as numbers, nine tenths to learn from and the last tenth to be judged on.
struct CharText {
  explicit CharText(const std::string& bytes);

  std::string alphabet;  // sorted: character i is alphabet[i]
  std::vector<heed::Index> train, held_out;
};

/// The same attention head as a causal model of characters: what comes next, from all that came before.
class CharModel {
 public:
  CharModel(heed::Index alphabet, heed::Index context, heed::Index d_model);

  /// ids (B, T), T <= context -> logits (B, T, alphabet)
  heed::Tensor operator()(const heed::Tensor& ids) const;
  /// ids (B, T) -> what each position attends to, (B, T, T)
  heed::Tensor weights(const heed::Tensor& ids) const;

  void visit(heed::nn::Visitor& v) {
    v("token_embedding", token_embedding), v("position_embedding", position_embedding);
    v("norm", norm), v("attention", attention), v("hidden", hidden), v("read_out", read_out);
  }
  heed::Index context() const { return context_; }

  heed::nn::Embedding token_embedding, position_embedding;
  heed::nn::LayerNorm norm;
  heed::nn::SingleHeadSelfAttention attention;
  heed::nn::Linear hidden, read_out;

 private:
  heed::Tensor embedded(const heed::Tensor& ids) const;
  heed::Index context_;
};

/// Trains on --text and tells; the process's exit status.
int run_text(const Options&);
