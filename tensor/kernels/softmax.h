#pragma once

#include "../dtype.h"

// Over the rows of row-major (rows, columns) matrices. T is float or double. Outputs may be an input.

namespace heed::kernels {

/// y_j = exp(x_j - max x) / sum_j exp(x_j - max x). A row of all -inf gives NaN.
template <class T>
void softmax(T* y, const T* x, Index rows, Index columns);
/// As softmax, but a row of all -inf gives zeros: attention to nothing.
template <class T>
void softmax_or_zero(T* y, const T* x, Index rows, Index columns);
/// dx = y (dy - sum_j y_j dy_j)
template <class T>
void softmax_backward(T* dx, const T* y, const T* dy, Index rows, Index columns);

/// y = (x - max x) - log sum_j exp(x_j - max x): in this order, so that large equal logits do not cancel.
template <class T>
void log_softmax(T* y, const T* x, Index rows, Index columns);
/// dx = dy - exp(y) sum_j dy_j
template <class T>
void log_softmax_backward(T* dx, const T* y, const T* dy, Index rows, Index columns);

namespace portable {
/// heed's own kernels, whatever else is there.
template <class T>
void softmax(T* y, const T* x, Index rows, Index columns);
template <class T>
void softmax_backward(T* dx, const T* y, const T* dy, Index rows, Index columns);
}  // namespace portable

}  // namespace heed::kernels
