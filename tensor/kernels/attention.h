#pragma once

#include <span>

#include "../layout.h"

// Attention in tiles: softmax(scale q k^T + mask) v and its gradients without a matrix of Tq x Tk, by the online softmax of Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018, and the recomputing backward of Dao et al., "FlashAttention", 2022. T is float or double.

namespace heed::kernels {

/// One matrix for each of a batch: matrix p begins at data + offsets[p], its rows are `row_stride` elements apart and dense. Offsets may repeat
/// (broadcast batches, shared heads) in inputs, not in outputs.
template <class T>
struct Batched {
  T* data = nullptr;
  std::span<const Index> offsets;
  Index row_stride = 0;
};

struct AttentionSizes {
  Index batch, Tq, Tk, d_k, d_v;
};

/// Which keys query i may attend to, and what is added to the scaled scores. Query i stands at position i + offset among the keys. Absent parts
/// (null, 0, empty) do not bind; a key must pass all others.
template <class T>
struct AttentionMask {
  bool causal = false;  ///< keys j <= i + offset
  Index offset = 0;
  Index window = 0;                ///< keys with |i + offset - j| < window, if positive
  std::span<const Index> lengths;  ///< per batch entry: keys j < length
  Batched<const bool> keep;        ///< rows of Tk, row_stride 0 repeats one row; null: all. Column stride is keep_column_stride (0 or 1)
  Index keep_column_stride = 1;
  Batched<const T> bias;  ///< added; -inf forbids
  Index bias_column_stride = 1;
  std::span<const T> slopes;  ///< per batch entry: slope |i + offset - j| is added (alibi: negative slopes)
};

/// Zero with probability p, else divided by 1 - p, of weight (p, i, j) by the number at seed, offset + ((p Tq) + i) Tk + j: the bits that the dropout
/// op draws for weights of (batch, Tq, Tk).
struct AttentionDropout {
  double p = 0;
  std::uint64_t seed = 0, offset = 0;
};

/// out (batch, Tq, d_v) and lse (batch, Tq), the log of each row's sum of exponents, -inf for queries that may attend to nothing: their output is 0.
template <class T>
void attention(const AttentionSizes&, Batched<const T> q, Batched<const T> k, Batched<const T> v, T scale, const AttentionMask<T>&,
               const AttentionDropout&, T* out, T* lse);

/// Gradients, row-major (batch, T, d); null ones are not computed. dbias is (batch, Tq, Tk) and the one array of that size. With P = exp(scale q k^T
/// + mask - lse), D = rowsum(dout out), dS = P (dout v^T - D): dv = P^T dout, dq = scale dS k, dk = scale dS^T q. The bits depend on the thread count
/// at most.
template <class T>
void attention_backward(const AttentionSizes&, Batched<const T> q, Batched<const T> k, Batched<const T> v, T scale, const AttentionMask<T>&,
                        const AttentionDropout&, const T* out, const T* lse, Batched<const T> dout, T* dq, T* dk, T* dv, T* dbias);

}  // namespace heed::kernels
