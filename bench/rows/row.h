#pragma once

#include <heed/heed.h>

#include <string>
#include <vector>

namespace heed::bench {

/// A row of the report by its name, "sdpa_train 12,1024,64 window=128 f64": what is timed, at which sizes, and how it differs from the usual.
///
///   overhead add 4x4                      one of a chain of 100 ops, forward and backward; chain=N
///   attention_step T,d_model,d_head       training step of one causal head: squared error, gradients of the weights, SGD
///   attention_shapes N,d_model,d_head     the same at T = 1, 2, ..., N in turn, a step each
///   sdpa_forward B*H,T,d                  attention without weights, causal
///   sdpa_train B*H,T,d                    and the gradients of q, k and v
///   gpt layers,heads,C,T,B                training step of a decoder over 65 tokens: cross entropy, all gradients, AdamW
///   linear rows,in,out                    with a bias, and the gradients of input, weight and bias
///   softmax rows,columns                  over the columns
///   softmax_train rows,columns            and its gradient
///
/// All take `f64`, and `onednn` or `portable` (the Backend); sdpa also `composed` (the kernel), `d_v=N`, and in place of causal alone: `full` (no
/// mask), `window=N` (and causal), `keep` (half of all pairs, at random) and `lengths` (keys up to T b / B for batch entry b = 1 ... B).
struct Row {
  /// Error for what is not such a name, with the reason.
  explicit Row(const std::string& name);

  enum class Sight { causal, full, window, keep, lengths };

  std::string name, kind;
  std::vector<Index> sizes;
  DType dtype = f32;
  Backend backend = Backend::automatic;
  Kernel kernel = Kernel::automatic;
  Sight sight = Sight::causal;
  Index window = 0, d_v = 0;
  Index chain = 100;
};

}  // namespace heed::bench
