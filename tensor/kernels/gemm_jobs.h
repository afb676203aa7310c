#pragma once

#include "gemm.h"

// Private: what the parts of the portable matrix products hand to each other.

namespace heed::kernels {

template <class T>
struct Product {
  Index m, n, k;
  Matrix<T> a, b;
  T* c;
  Index ldc;
  bool add;
};

/// A product with few rows and any number of columns, or the transpose of one with few columns.
template <class T>
struct Few {
  Index m, n, k;
  Matrix<T> a, b;
  T* c;
  Index c_row, c_col;
  bool add;
};

/// How a product is cut: `k` rows and `n` columns of B are used together, and stay in the second cache while all rows of A pass.
struct Blocks {
  Index k, n;
  bool copy_a, copy_b;
  Index panel;                    ///< elements of the copy of B
  Index tile_rows, tile_columns;  ///< of this CPU
};

}  // namespace heed::kernels
