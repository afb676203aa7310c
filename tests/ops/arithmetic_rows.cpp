#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {
namespace {

using Function = Results (*)(const Tensors&);

/// What every op of two tensors gets: equal shapes and all ways to broadcast.
void add_binary(std::vector<OpRow>& rows, const char* name, Range a, Range b, Function f) {
  rows.push_back({name, "same_shape", {in({3, 4}, a), in({3, 4}, b)}, f});
  rows.push_back({name, "row_and_column", {in({3, 1}, a), in({1, 4}, b)}, f});
  rows.push_back({name, "lower_rank_right", {in({2, 3, 4}, a), in({4}, b)}, f});
  rows.push_back({name, "lower_rank_left", {in({4}, a), in({2, 3, 4}, b)}, f});
  rows.push_back({name, "without_dims", {in({2, 3}, a), in({}, b)}, f});
  rows.push_back({name, "both_without_dims", {in({}, a), in({}, b)}, f});
  rows.push_back({name, "empty", {in({0, 3}, a), in({1, 3}, b)}, f});
  rows.push_back({name, "large", {in({37, 65}, a), in({65}, b)}, f, Size::large});
}

}  // namespace

std::vector<OpRow> arithmetic_rows() {
  std::vector<OpRow> rows;
  const Range any = between(-1, 1), away = either_sign(0.5, 2), positive = between(0.5, 2);

  add_binary(rows, "operator+", any, any, [](const Tensors& x) -> Results { return x[0] + x[1]; });
  rows.push_back({"operator+", "number_right", {in({3, 4})}, [](const Tensors& x) -> Results { return x[0] + 1.5; }});
  rows.push_back({"operator+", "number_left", {in({3, 4})}, [](const Tensors& x) -> Results { return 2 + x[0]; }});

  add_binary(rows, "operator-", any, any, [](const Tensors& x) -> Results { return x[0] - x[1]; });
  rows.push_back({"operator-", "number_right", {in({3, 4})}, [](const Tensors& x) -> Results { return x[0] - 1.5; }});
  rows.push_back({"operator-", "number_left", {in({3, 4})}, [](const Tensors& x) -> Results { return 2 - x[0]; }});
  rows.push_back({"operator-", "negative", {in({3, 4})}, [](const Tensors& x) -> Results { return -x[0]; }});
  rows.push_back({"operator-", "negative_empty", {in({2, 0})}, [](const Tensors& x) -> Results { return -x[0]; }});

  add_binary(rows, "operator*", any, any, [](const Tensors& x) -> Results { return x[0] * x[1]; });
  rows.push_back({"operator*", "number_right", {in({3, 4})}, [](const Tensors& x) -> Results { return x[0] * 1.5; }});
  rows.push_back({"operator*", "number_left", {in({3, 4})}, [](const Tensors& x) -> Results { return 2 * x[0]; }});

  add_binary(rows, "operator/", any, away, [](const Tensors& x) -> Results { return x[0] / x[1]; });
  rows.push_back({"operator/", "number_right", {in({3, 4})}, [](const Tensors& x) -> Results { return x[0] / 1.5; }});
  rows.push_back({"operator/", "number_left", {in({3, 4}, away)}, [](const Tensors& x) -> Results { return 2 / x[0]; }});

  add_binary(rows, "pow", positive, positive, [](const Tensors& x) -> Results { return pow(x[0], x[1]); });
  rows.push_back({"pow", "square", {in({3, 4}, either_sign(0.2, 2))}, [](const Tensors& x) -> Results { return pow(x[0], 2); }});
  rows.push_back({"pow", "cube_of_either_sign", {in({3, 4}, either_sign(0.2, 2))}, [](const Tensors& x) -> Results { return pow(x[0], 3); }});
  rows.push_back({"pow", "root", {in({3, 4}, positive)}, [](const Tensors& x) -> Results { return pow(x[0], 0.5); }});
  rows.push_back({"pow", "reciprocal", {in({3, 4}, away)}, [](const Tensors& x) -> Results { return pow(x[0], -1); }});
  rows.push_back({"pow", "zeroth", {in({3, 4}, away)}, [](const Tensors& x) -> Results { return pow(x[0], 0); }});
  rows.push_back({"pow", "number_left", {in({3, 4})}, [](const Tensors& x) -> Results { return pow(2.5, x[0]); }});

  // Magnitudes that never meet: each operand is the larger one somewhere, and never by little.
  const Range outer = either_sign(0.5, 1), inner = between(-0.4, 0.4);
  add_binary(rows, "maximum", outer, inner, [](const Tensors& x) -> Results { return maximum(x[0], x[1]); });
  rows.push_back({"maximum", "number", {in({3, 4}, outer)}, [](const Tensors& x) -> Results { return maximum(x[0], 0.25); }});
  add_binary(rows, "minimum", outer, inner, [](const Tensors& x) -> Results { return minimum(x[0], x[1]); });
  rows.push_back({"minimum", "number", {in({3, 4}, outer)}, [](const Tensors& x) -> Results { return minimum(x[0], 0); }});
  return rows;
}

}  // namespace heed::ops
