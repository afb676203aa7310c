#pragma once

#include "../dtype.h"

// Moving rows and elements by number. Indices have been checked. All arrays are row-major; T is float, double, Index or bool unless said otherwise.

namespace heed::kernels {

/// out[i] = table[ids[i]], rows of `width` elements.
template <class T>
void take_rows(T* out, const T* table, const Index* ids, Index count, Index width);
/// table[ids[i]] += x[i], in the order of i for every element: the same bits for every thread count. float and double.
template <class T>
void add_rows(T* table, const T* x, const Index* ids, Index count, Index width);

/// Along the middle of (outer, length, inner): out[o][i][r] = x[o][index[o][i][r]][r] with x of length `length` and out and index of `picks`.
struct PickSizes {
  Index outer, length, picks, inner;
};
template <class T>
void pick(T* out, const T* x, const Index* index, const PickSizes&);
/// x[o][index[o][i][r]][r] += y[o][i][r]. float and double.
template <class T>
void add_picked(T* x, const T* y, const Index* index, const PickSizes&);

}  // namespace heed::kernels
