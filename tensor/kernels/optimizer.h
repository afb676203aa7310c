#pragma once

#include "../dtype.h"

// One pass over a parameter and its optimizer state, all row-major with n elements. T is float or double.

namespace heed::kernels {

struct SgdStep {
  double lr, momentum, weight_decay;
  bool nesterov, first;  ///< first: the momentum buffer starts as the gradient
};
/// g += weight_decay p; buffer = momentum buffer + g; p -= lr (nesterov ? g + momentum buffer : buffer). `buffer` is null without momentum.
template <class T>
void sgd(T* p, const T* g, T* buffer, Index n, const SgdStep&);

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;  ///< AdamW: p -= lr weight_decay p; otherwise g += weight_decay p
  double step;     ///< counted from 1
};
/// Kingma and Ba, "Adam", 2015; decoupled decay by Loshchilov and Hutter, 2019. m and v are the moments;
/// p -= lr / (1 - beta1^step) m / (sqrt(v / (1 - beta2^step)) + eps). Where v is more than T holds it becomes infinite and p NaN.
template <class T>
void adam(T* p, const T* g, T* m, T* v, Index n, const AdamStep&);

}  // namespace heed::kernels
