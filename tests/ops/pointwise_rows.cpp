#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {
namespace {

void add_unary(std::vector<OpRow>& rows, const char* name, const char* kind, Range range, Results (*f)(const Tensors&)) {
  const std::string prefix = *kind ? std::string(kind) + "_" : "";
  rows.push_back({name, prefix + "matrix", {in({3, 4}, range)}, f});
  rows.push_back({name, prefix + "without_dims", {in({}, range)}, f});
  rows.push_back({name, prefix + "empty", {in({0, 3}, range)}, f});
  rows.push_back({name, prefix + "large", {in({5, 67}, range)}, f, Size::large});
}

}  // namespace

std::vector<OpRow> pointwise_rows() {
  std::vector<OpRow> rows;
  const Range any = between(-2, 2), positive = between(0.2, 3), off_zero = either_sign(0.2, 2);
  add_unary(rows, "exp", "", any, [](const Tensors& x) -> Results { return exp(x[0]); });
  add_unary(rows, "log", "", positive, [](const Tensors& x) -> Results { return log(x[0]); });
  add_unary(rows, "log1p", "", between(-0.7, 2), [](const Tensors& x) -> Results { return log1p(x[0]); });
  add_unary(rows, "sqrt", "", positive, [](const Tensors& x) -> Results { return sqrt(x[0]); });
  add_unary(rows, "rsqrt", "", positive, [](const Tensors& x) -> Results { return rsqrt(x[0]); });
  add_unary(rows, "square", "", any, [](const Tensors& x) -> Results { return square(x[0]); });
  add_unary(rows, "abs", "", off_zero, [](const Tensors& x) -> Results { return abs(x[0]); });
  add_unary(rows, "tanh", "", any, [](const Tensors& x) -> Results { return tanh(x[0]); });
  add_unary(rows, "sigmoid", "", between(-4, 4), [](const Tensors& x) -> Results { return sigmoid(x[0]); });
  add_unary(rows, "relu", "", off_zero, [](const Tensors& x) -> Results { return relu(x[0]); });
  add_unary(rows, "silu", "", between(-4, 4), [](const Tensors& x) -> Results { return silu(x[0]); });
  add_unary(rows, "gelu", "erf", between(-3, 3), [](const Tensors& x) -> Results { return gelu(x[0]); });
  add_unary(rows, "gelu", "tanh", between(-3, 3), [](const Tensors& x) -> Results { return gelu(x[0], Gelu::tanh); });
  return rows;
}

}  // namespace heed::ops
