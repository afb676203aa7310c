#include <heed/autograd/ops.h>

#include <limits>

#include "op_table.h"

namespace heed::ops {
namespace {

using Function = Results (*)(const Tensors&);

/// The larger of both somewhere, the first somewhere: equal and unequal elements in one comparison.
Tensor partner(const Tensors& x) { return maximum(x[0], x[1]); }

void add_compare(std::vector<OpRow>& rows, const char* name, Function f, Function number) {
  rows.push_back({name, "same_shape", {in({3, 4}), in({3, 4})}, f});
  rows.push_back({name, "broadcast", {in({3, 1}), in({2, 1, 4})}, f});
  rows.push_back({name, "number", {in({3, 4})}, number});
  rows.push_back({name, "empty", {in({0, 4}), in({1, 4})}, f});
  rows.push_back({name, "large", {in({9, 43}), in({43})}, f, Size::large});
}

void add_quantifier(std::vector<OpRow>& rows, const char* name, Tensor (*f)(const Tensor&, const Dims&, bool, Caller)) {
  const auto over = [f](const Dims& dims, bool keepdim) {
    return [=](const Tensors& x) -> Results { return f(gt(x[0], 0.3), dims, keepdim, Caller::here()); };
  };
  rows.push_back({name, "whole", {in({3, 4})}, over({}, false)});
  rows.push_back({name, "dim", {in({3, 2})}, over(0, false)});
  rows.push_back({name, "dims_keepdim", {in({2, 3, 2})}, over({0, -1}, true)});
  rows.push_back({name, "without_dims", {in({})}, over({}, false)});
  rows.push_back({name, "empty", {in({2, 0})}, over(1, false)});
}

}  // namespace

std::vector<OpRow> logic_rows() {
  std::vector<OpRow> rows;
  add_compare(
      rows, "eq", [](const Tensors& x) -> Results { return eq(x[0], partner(x)); }, [](const Tensors& x) -> Results { return eq(relu(x[0]), 0); });
  add_compare(
      rows, "ne", [](const Tensors& x) -> Results { return ne(x[0], partner(x)); }, [](const Tensors& x) -> Results { return ne(relu(x[0]), 0); });
  add_compare(
      rows, "lt", [](const Tensors& x) -> Results { return lt(x[0], partner(x)); }, [](const Tensors& x) -> Results { return lt(relu(x[0]), 0); });
  add_compare(
      rows, "le", [](const Tensors& x) -> Results { return le(x[0], partner(x)); }, [](const Tensors& x) -> Results { return le(relu(x[0]), 0); });
  add_compare(
      rows, "gt", [](const Tensors& x) -> Results { return gt(x[0], partner(x)); }, [](const Tensors& x) -> Results { return gt(relu(x[0]), 0); });
  add_compare(
      rows, "ge", [](const Tensors& x) -> Results { return ge(x[0], partner(x)); }, [](const Tensors& x) -> Results { return ge(relu(x[0]), 0); });

  // log of numbers of both signs: NaN, finite, and with the added infinity of 1/0 all kinds.
  const auto every_kind = [](const Tensors& x) { return cat({log(x[0]), log(0 * x[0])}, -1); };
  rows.push_back({"isnan", "every_kind", {in({3, 4})}, [=](const Tensors& x) -> Results { return isnan(every_kind(x)); }});
  rows.push_back({"isnan", "empty", {in({3, 0})}, [](const Tensors& x) -> Results { return isnan(x[0]); }});
  rows.push_back({"isfinite", "every_kind", {in({3, 4})}, [=](const Tensors& x) -> Results { return isfinite(every_kind(x)); }});
  rows.push_back({"isfinite", "empty", {in({3, 0})}, [](const Tensors& x) -> Results { return isfinite(x[0]); }});

  rows.push_back({"operator&", "broadcast", {in({3, 4}), in({4})}, [](const Tensors& x) -> Results { return gt(x[0], 0) & gt(x[1], 0); }});
  rows.push_back({"operator&", "empty", {in({0, 4}), in({4})}, [](const Tensors& x) -> Results { return gt(x[0], 0) & gt(x[1], 0); }});
  rows.push_back({"operator|", "broadcast", {in({3, 4}), in({4})}, [](const Tensors& x) -> Results { return gt(x[0], 0) | gt(x[1], 0); }});
  rows.push_back({"operator|", "empty", {in({0, 4}), in({4})}, [](const Tensors& x) -> Results { return gt(x[0], 0) | gt(x[1], 0); }});
  rows.push_back({"operator!", "matrix", {in({3, 4})}, [](const Tensors& x) -> Results { return !gt(x[0], 0); }});
  rows.push_back({"operator!", "empty", {in({3, 0})}, [](const Tensors& x) -> Results { return !gt(x[0], 0); }});

  add_quantifier(rows, "any", any);
  add_quantifier(rows, "all", all);
  return rows;
}

}  // namespace heed::ops
