#pragma once

#include "../dtype.h"

// Ba, Kiros and Hinton, "Layer normalization", 2016. Over the rows of row-major (rows, columns) matrices. T is float or double.

namespace heed::kernels {

/// y = (x - mean) rstd weight + bias with rstd = 1 / sqrt(var + eps), var = mean (x - mean)^2 in two passes. `weight` and `bias` may be null.
/// mean and rstd have one element a row and are what the backward needs. Rows whose squares would overflow or vanish are scaled first.
template <class T>
void layer_norm(T* y, T* mean, T* rstd, const T* x, const T* weight, const T* bias, double eps, Index rows, Index columns);

/// With xh = (x - mean) rstd and g = dy weight: dx = rstd (g - mean_j g - xh mean_j (g xh)), dweight = sum_rows dy xh, dbias = sum_rows dy.
/// Any of dx, dweight, dbias may be null. `eps` is the forward's. The bits do not depend on the number of threads.
template <class T>
void layer_norm_backward(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* mean, const T* rstd, const T* weight, double eps, Index rows,
                         Index columns);

}  // namespace heed::kernels
