#pragma once

#include <random>

#include "options.h"

/// Sequences of pairs and a question: what the layer learns when no text is given.
///
/// Each of the first T - 1 positions holds a pair, the sum of a key's and a value's embedding; the keys of a sequence are distinct, the values any.
/// The last position holds the embedding of one of those keys alone. The answer is the value that stood beside it.
struct RecallBatch {
  heed::Tensor keys;           // (B, T): the last one is asked for
  heed::Tensor values;         // (B, T - 1)
  heed::Tensor answers;        // (B)
  heed::Index asked_of_first;  // where the answer of sequence 0 stands
};
RecallBatch make_recall_batch(heed::Index batch, heed::Index length, heed::Index n_keys, heed::Index n_values, std::mt19937_64&);

/// Embeddings, one causal attention head, and a read-out of the last position.
class RecallModel {
 public:
  RecallModel(heed::Index n_keys, heed::Index n_values, heed::Index d_model, heed::Index d_head);

  struct Result {
    heed::Tensor logits;   // (B, values)
    heed::Tensor weights;  // (B, T, T)
  };
  Result operator()(const RecallBatch&) const;

  void visit(heed::nn::Visitor& v) {
    v("key_embedding", key_embedding), v("value_embedding", value_embedding);
    v("attention", attention), v("read_out", read_out);
  }

  heed::nn::Embedding key_embedding, value_embedding;
  heed::nn::SingleHeadSelfAttention attention;
  heed::nn::Linear read_out;
};

/// Trains and tells; the process's exit status: 0 when at least 99 % of fresh sequences are answered.
int run_recall(const Options&);
