#include <heed/autograd/ops.h>

#include <cmath>

#include "op_table.h"

namespace heed::ops {
namespace {

void add_normalization(std::vector<OpRow>& rows, const char* name, Tensor (*f)(const Tensor&, Index, Caller)) {
  const auto along = [f](Index dim) { return [=](const Tensors& x) -> Results { return f(x[0], dim, Caller::here()); }; };
  const Range range = between(-2, 2);
  rows.push_back({name, "last_dim", {in({3, 4}, range)}, along(-1)});
  rows.push_back({name, "first_dim", {in({3, 4}, range)}, along(0)});
  rows.push_back({name, "middle_dim", {in({2, 3, 2}, range)}, along(1)});
  rows.push_back({name, "vector", {in({5}, range)}, along(0)});
  rows.push_back({name, "one_column", {in({3, 1}, range)}, along(1)});
  rows.push_back({name, "without_dims", {in({}, range)}, along(0)});
  rows.push_back({name, "empty", {in({0, 3}, range)}, along(1)});
  rows.push_back({name, "no_columns", {in({3, 0}, range)}, along(1)});
  rows.push_back({name, "large", {in({9, 131}, range)}, along(-1), Size::large});
  rows.push_back({name, "large_first_dim", {in({40, 33}, range)}, along(0), Size::large});
}

}  // namespace

std::vector<OpRow> softmax_rows() {
  std::vector<OpRow> rows;
  add_normalization(rows, "softmax", softmax);
  add_normalization(rows, "log_softmax", log_softmax);
  const auto or_zero = [](const Tensors& x) -> Results { return detail::softmax_or_zero(x[0]); };
  rows.push_back({"detail::softmax_or_zero", "matrix", {in({3, 4})}, or_zero});
  rows.push_back({"detail::softmax_or_zero", "row_of_nothing", {in({2, 3})}, [](const Tensors& x) -> Results {
                    return detail::softmax_or_zero(masked_fill(x[0], tensor({{0, 1, 0}, {1, 1, 1}}, boolean), -INFINITY));
                  }});
  rows.push_back({"detail::softmax_or_zero", "empty", {in({2, 0})}, or_zero});
  rows.push_back({"detail::softmax_or_zero", "large", {in({9, 131})}, or_zero, Size::large});
  return rows;
}

}  // namespace heed::ops
