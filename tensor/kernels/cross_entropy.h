#pragma once

#include "../dtype.h"

// Cross entropy over rows of logits, in one pass each way. T is float or double. Tensors are row-major.

namespace heed::kernels {

/// What each row should have been: class classes[i], to the share 1 - smoothing, and all classes evenly to the share smoothing. Rows whose class is
/// `ignored` have no loss and no gradient.
struct CrossEntropyTargets {
  const Index* classes;
  Index ignored;
  double smoothing;
};

/// losses[i] = -factor sum_c w[i][c] log softmax(x[i])[c], w the shares. Of row i, stats[2 i] keeps the largest element and stats[2 i + 1] the
/// inverse of sum exp(x - largest): together with x all that the backward needs, and, other than the logarithm of the sum, exact for large logits.
template <class T>
void cross_entropy(T* losses, T* stats, const T* x, const CrossEntropyTargets&, double factor, Index rows, Index columns);

/// dx[i][c] = factor g[i * g_stride] (softmax(x[i])[c] - w[i][c])
template <class T>
void cross_entropy_backward(T* dx, const T* x, const T* stats, const CrossEntropyTargets&, const T* g, Index g_stride, double factor, Index rows,
                            Index columns);

}  // namespace heed::kernels
