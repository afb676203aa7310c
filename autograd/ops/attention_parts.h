#pragma once

// Private: what the kernels of attention share.

#include "../attention.h"
#include "forward.h"

namespace heed::detail {

/// A call whose arguments have been checked.
struct AttentionCall {
  OpName op;
  const Tensor &q, &k, &v;
  const AttentionOptions& options;
  double scale;
  Dims scores;  ///< (..., Tq, Tk), the batch dims of q and k
};

Attention composed_attention(const AttentionCall&);
Attention tiled_attention(const AttentionCall&);

/// Pairs of query and key that position and lengths allow, over the whole batch.
double allowed_pairs(const Mask&, const Dims& scores);

}  // namespace heed::detail
