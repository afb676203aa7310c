#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {

std::vector<OpRow> matmul_rows() {
  const auto product = [](const Tensors& x) -> Results { return matmul(x[0], x[1]); };
  const auto layer = [](const Tensors& x) -> Results { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); };
  std::vector<OpRow> rows{
      {"matmul", "square", {in({3, 3}), in({3, 3})}, product},
      {"matmul", "matrices", {in({2, 3}), in({3, 4})}, product},
      {"matmul", "matrix_vector", {in({2, 3}), in({3})}, product},
      {"matmul", "vector_matrix", {in({3}), in({3, 2})}, product},
      {"matmul", "vectors", {in({4}), in({4})}, product},
      {"matmul", "batch", {in({2, 2, 3}), in({2, 3, 2})}, product},
      {"matmul", "batch_by_matrix", {in({2, 2, 3}), in({3, 2})}, product},
      {"matmul", "matrix_by_batch", {in({2, 3}), in({2, 3, 2})}, product},
      {"matmul", "batch_by_vector", {in({2, 2, 3}), in({3})}, product},
      {"matmul", "vector_by_batch", {in({3}), in({2, 3, 2})}, product},
      {"matmul", "batches_broadcast", {in({2, 1, 2, 3}), in({3, 3, 2})}, product},
      {"matmul", "batch_of_one", {in({1, 2, 3}), in({2, 3, 2})}, product},
      {"matmul", "size_1", {in({1, 1}), in({1, 1})}, product},
      {"matmul", "inner_0", {in({3, 0}), in({0, 2})}, product},
      {"matmul", "inner_0_batch", {in({4, 3, 0}), in({4, 0, 2})}, product},
      {"matmul", "inner_0_batch_by_matrix", {in({4, 3, 0}), in({0, 2})}, product},
      {"matmul", "inner_0_matrix_vector", {in({3, 0}), in({0})}, product},
      {"matmul", "empty", {in({0, 3}), in({3, 2})}, product},
      {"matmul", "empty_columns", {in({2, 3}), in({3, 0})}, product},
      {"matmul", "empty_batch", {in({0, 2, 3}), in({3, 2})}, product},
      // Beyond the size at which oneDNN serves f32; f64 stays with the portable kernel, so that one checks the other.
      {"matmul", "large", {in({65, 97}), in({97, 83})}, product, Size::large},
      {"matmul", "large_batch", {in({2, 3, 33, 40}), in({3, 40, 37})}, product, Size::large},
      {"matmul", "large_batch_by_matrix", {in({3, 41, 64}), in({64, 70})}, product, Size::large},
      {"matmul", "large_matrix_vector", {in({130, 75}), in({75})}, product, Size::large},
      {"linear", "bias", {in({2, 3}), in({4, 3}), in({4})}, layer},
      {"linear", "no_bias", {in({2, 3}), in({4, 3})}, layer},
      {"linear", "vector", {in({3}), in({2, 3}), in({2})}, layer},
      {"linear", "batch", {in({2, 2, 3}), in({2, 3}), in({2})}, layer},
      {"linear", "inner_0", {in({2, 3, 0}), in({2, 0}), in({2})}, layer},
      {"linear", "empty", {in({0, 3}), in({4, 3}), in({4})}, layer},
      {"linear", "large", {in({4, 31, 66}), in({90, 66}), in({90})}, layer, Size::large},
  };
  return rows;
}

}  // namespace heed::ops
