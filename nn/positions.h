#pragma once

#include "../tensor/tensor.h"

namespace heed::nn {

/// Which two elements of a vector turn together in rotary positions.
enum class RotaryPairs {
  neighbors,  ///< 2i and 2i + 1, as in the paper
  halves      ///< i and i + d/2, as in many published checkpoints
};

/// How vectors turn.
struct RotaryOptions {
  Index offset = 0;                            ///< position of the first vector: the length of the cache
  double base = 10000;                         ///< larger bases turn the later pairs slower
  RotaryPairs pairs = RotaryPairs::neighbors;  ///< must be that of the checkpoint
};

/// Rotary positions, for queries and keys: Su et al., "RoFormer", 2021. x (..., T, d), d even, any number of heads and batches in front.
///
///   pair i of the vector at position t turns by the angle t base^(-2i/d): (a, b) -> (a cos - b sin, a sin + b cos)
///
/// Lengths stay, and a product of two turned vectors depends on the distance between their positions only. Differentiable. Angles are computed in
/// double. ShapeError for an odd d, DTypeError for other than floats, Error for positions that double cannot hold: beyond 2^53 on either side.
Tensor rotary(const Tensor& x, const RotaryOptions& = {}, Caller = Caller::here());

/// Positions to add to embeddings, (T, d): sin(t 10000^(-2i/d)) at 2i and cos of the same at 2i + 1, for positions offset, offset + 1, ...; Vaswani
/// et al., "Attention is all you need", 2017. A leaf that wants no gradient. ShapeError for negative sizes, other errors as rotary.
Tensor sinusoidal_positions(Index T, Index d, DType = f32, Index offset = 0);

}  // namespace heed::nn
