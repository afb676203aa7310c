#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {
namespace {

using Reduction = Tensor (*)(const Tensor&, const Dims&, bool, Caller);

/// Every way to say over which dims.
void add_reduction(std::vector<OpRow>& rows, const char* name, Range range, Reduction f) {
  const auto over = [f](const Dims& dims, bool keepdim) {
    return [=](const Tensors& x) -> Results { return f(x[0], dims, keepdim, Caller::here()); };
  };
  rows.push_back({name, "whole", {in({3, 4}, range)}, over({}, false)});
  rows.push_back({name, "whole_keepdim", {in({3, 4}, range)}, over({}, true)});
  rows.push_back({name, "first_dim", {in({3, 4}, range)}, over(0, false)});
  rows.push_back({name, "last_dim_keepdim", {in({3, 4}, range)}, over(-1, true)});
  rows.push_back({name, "middle_dim", {in({2, 3, 2}, range)}, over(1, false)});
  rows.push_back({name, "outer_dims", {in({2, 3, 2}, range)}, over({-1, 0}, false)});
  rows.push_back({name, "outer_dims_keepdim", {in({2, 3, 2}, range)}, over({0, 2}, true)});
  rows.push_back({name, "empty", {in({0, 3}, range)}, over(1, false)});
  rows.push_back({name, "large", {in({7, 19, 33}, range)}, over({0, 2}, false), Size::large, 16});
}

Tensor population_variance(const Tensor& x, const Dims& dims, bool keepdim, Caller) { return var(x, dims, 0, keepdim); }
Tensor sample_variance(const Tensor& x, const Dims& dims, bool keepdim, Caller) { return var(x, dims, 1, keepdim); }

}  // namespace

std::vector<OpRow> reduce_rows() {
  std::vector<OpRow> rows;
  const Range any = between(-1, 1), spread = distinct(-1, 1);
  add_reduction(rows, "sum", any, sum);
  rows.push_back({"sum", "without_dims", {in({})}, [](const Tensors& x) -> Results { return sum(x[0]); }});
  rows.push_back({"sum", "of_nothing", {in({0, 3})}, [](const Tensors& x) -> Results { return sum(x[0], 0); }});
  add_reduction(rows, "mean", any, mean);
  rows.push_back({"mean", "without_dims", {in({})}, [](const Tensors& x) -> Results { return mean(x[0]); }});
  add_reduction(rows, "max", spread, max);
  rows.push_back({"max", "without_dims", {in({})}, [](const Tensors& x) -> Results { return max(x[0]); }});
  add_reduction(rows, "min", spread, min);
  rows.push_back({"min", "without_dims", {in({})}, [](const Tensors& x) -> Results { return min(x[0]); }});
  add_reduction(rows, "var", any, sample_variance);
  rows.push_back({"var", "correction_0", {in({3, 4})}, [](const Tensors& x) -> Results { return var(x[0], 1, 0); }});
  rows.push_back({"var", "correction_0_whole", {in({3, 4})}, [](const Tensors& x) -> Results { return population_variance(x[0], {}, true, {}); }});
  rows.push_back({"var", "without_dims", {in({})}, [](const Tensors& x) -> Results { return var(x[0], {}, 0); }});
  add_reduction(rows, "logsumexp", between(-2, 2), logsumexp);
  rows.push_back({"logsumexp", "without_dims", {in({})}, [](const Tensors& x) -> Results { return logsumexp(x[0]); }});
  add_reduction(rows, "norm", either_sign(0.2, 1), norm);
  rows.push_back({"norm", "without_dims", {in({}, either_sign(0.2, 1))}, [](const Tensors& x) -> Results { return norm(x[0]); }});
  rows.push_back({"norm", "of_nothing", {in({0, 3})}, [](const Tensors& x) -> Results { return norm(x[0], 0); }});

  rows.push_back({"argmax", "whole", {in({3, 4}, spread)}, [](const Tensors& x) -> Results { return argmax(x[0]); }});
  rows.push_back({"argmax", "first_dim", {in({3, 4}, spread)}, [](const Tensors& x) -> Results { return argmax(x[0], 0); }});
  rows.push_back({"argmax", "last_dim_keepdim", {in({2, 3, 4}, spread)}, [](const Tensors& x) -> Results { return argmax(x[0], -1, true); }});
  rows.push_back({"argmax", "whole_keepdim", {in({3, 4}, spread)}, [](const Tensors& x) -> Results { return argmax(x[0], {}, true); }});
  rows.push_back({"argmax", "without_dims", {in({})}, [](const Tensors& x) -> Results { return argmax(x[0], 0); }});
  rows.push_back({"argmax", "empty", {in({0, 3})}, [](const Tensors& x) -> Results { return argmax(x[0], 1); }});
  return rows;
}

}  // namespace heed::ops
