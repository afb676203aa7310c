#pragma once

#include <cstdint>
#include <span>

#include "../dtype.h"

// Attention in tiles: softmax(scale q k^T + mask) v and its gradients without a matrix of Tq x Tk, by the online softmax of Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018, and the recomputing backward of Dao et al., "FlashAttention", 2022. T is float or double.
//
// The bits of every result are the same for every thread count. A masked weight is exactly 0, but 0 times NaN is NaN: a NaN in a key's value may
// show at queries that may not attend to it when others in the same tile may. Scores are in T: a query whose largest score overflows, to either side,
// gives NaN.

namespace heed::kernels {

/// One matrix for each of a batch: matrix p begins at data + offsets[p], its rows are `row_stride` elements apart and dense. Offsets may repeat
/// (broadcast batches, shared heads).
template <class T>
struct Batched {
  T* data = nullptr;
  std::span<const Index> offsets;
  Index row_stride = 0;
};

/// Any size may be 0.
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
  Batched<const bool> keep;        ///< true may be attended to; rows of Tk, row_stride 0 repeats one row
  Index keep_column_stride = 1;    ///< 0 repeats one column
  Batched<const T> bias;           ///< added; -inf forbids, whatever the score; strides as those of keep
  Index bias_column_stride = 1;
  std::span<const T> slopes;  ///< per batch entry: slope |i + offset - j| is added (alibi: negative slopes)

  bool has_added() const { return keep.data || bias.data; }
};

/// Zero with probability p, else divided by 1 - p, of weight (p, i, j) by the number at seed, offset + ((p Tq) + i) Tk + j: the bits that the dropout
/// op draws for weights of (batch, Tq, Tk).
struct AttentionDropout {
  double p = 0;
  std::uint64_t seed = 0, offset = 0;
};

/// What the softmax of one query is made from, each (batch, Tq): the largest of its scores s_j, and the sum of exp(s_j - max). -inf and 0 for
/// queries that may attend to nothing. Kept apart, since max + log sum would lose the sum beside large scores.
template <class T>
struct SoftmaxRows {
  T *max, *sum;
};

/// out (batch, Tq, d_v) and what weights and the backward want of the rows; null where neither is to come, which changes no bit of `out`. Queries
/// that may attend to nothing give 0.
template <class T>
void attention(const AttentionSizes&, Batched<const T> q, Batched<const T> k, Batched<const T> v, T scale, const AttentionMask<T>&,
               const AttentionDropout&, Batched<T> out, SoftmaxRows<T>);

/// The weights themselves, before dropout: (batch, Tq, Tk), exp(s - max) / sum from the rows of a forward.
template <class T>
void attention_weights(const AttentionSizes&, Batched<const T> q, Batched<const T> k, T scale, const AttentionMask<T>&, SoftmaxRows<const T>,
                       T* weights);

/// Gradients; null ones are not computed. dq (batch, Tq, d_k), dk (batch, Tk, d_k), dv (batch, Tk, d_v); dbias (batch, Tq, Tk), row-major, is the one
/// array of that size.
template <class T>
struct AttentionGradients {
  Batched<T> dq, dk, dv;
  T* dbias = nullptr;
};

/// With P = exp(s - max) / sum, D = rowsum(dout out), dS = P (dout v^T - D): dv = P^T dout, dq = scale dS k, dk = scale dS^T q, dbias = dS.
/// Dropout scales P in dv and dout v^T in dS.
template <class T>
void attention_backward(const AttentionSizes&, Batched<const T> q, Batched<const T> k, Batched<const T> v, T scale, const AttentionMask<T>&,
                        const AttentionDropout&, Batched<const T> out, SoftmaxRows<const T>, Batched<const T> dout, AttentionGradients<T>);

}  // namespace heed::kernels
