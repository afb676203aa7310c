#pragma once

#include "elementwise.h"

// Over any dims of a strided input: `kept` and `reduced` are its dims (sizes and strides) that stay and that go; the output is row-major over `kept`.
// The bits do not depend on the number of threads. T is float or double.

namespace heed::kernels {

/// Some dims of an input.
struct Axes {
  Dims shape, strides;
};

/// factor times the sum; the sum of nothing is 0. f32 is summed in pieces whose sums are added in f64, so that the error does not grow with the
/// length. Sums that overflow on the way to a result that does not are taken again, in f64 and scaled.
template <class T>
void sum(T* out, const T* x, const Axes& kept, const Axes& reduced, double factor = 1);

/// Position, in row-major order over `reduced`, of the first largest (smallest) element; NaN counts as largest (smallest).
/// `reduced` has at least one element. T also Index.
template <class T>
void argmax(Index* out, const T* x, const Axes& kept, const Axes& reduced);
template <class T>
void argmin(Index* out, const T* x, const Axes& kept, const Axes& reduced);

/// all of nothing is true, any of nothing is false.
void all(bool* out, const bool* x, const Axes& kept, const Axes& reduced);
void any(bool* out, const bool* x, const Axes& kept, const Axes& reduced);

/// Sums Index elements (counts) exactly, wrapping.
void sum(Index* out, const Index* x, const Axes& kept, const Axes& reduced);

}  // namespace heed::kernels
