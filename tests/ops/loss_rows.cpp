#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {
namespace {

using Function = std::function<Results(const Tensors&)>;

Function against(const detail::Nested& targets, CrossEntropyOptions options = {}) {
  return [=, t = tensor(targets, i64)](const Tensors& x) -> Results { return cross_entropy(x[0], t, options); };
}

}  // namespace

std::vector<OpRow> loss_rows() {
  const Range logits = between(-2, 2);
  std::vector<OpRow> rows;
  for (const auto& [reduction, name] : {std::pair{Reduction::mean, "mean"}, {Reduction::sum, "sum"}, {Reduction::none, "none"}}) {
    const std::string prefix = name;
    rows.push_back({"cross_entropy", prefix, {in({3, 4}, logits)}, against({1, 3, 0}, {.reduction = reduction})});
    rows.push_back({"cross_entropy", prefix + "_ignored", {in({3, 4}, logits)}, against({1, -100, 0}, {.reduction = reduction})});
    rows.push_back({"cross_entropy", prefix + "_smooth", {in({3, 4}, logits)}, against({1, 3, 0}, {.reduction = reduction, .label_smoothing = 0.1})});
    rows.push_back({"cross_entropy",
                    prefix + "_smooth_ignored",
                    {in({3, 4}, logits)},
                    against({2, 3, 0}, {.reduction = reduction, .ignore_index = 3, .label_smoothing = 0.2})});
    rows.push_back({"mse_loss", prefix, {in({2, 3}), in({2, 3})}, [r = reduction](const Tensors& x) -> Results { return mse_loss(x[0], x[1], r); }});
  }
  rows.push_back({"cross_entropy", "one_row", {in({4}, logits)}, against(2)});
  rows.push_back({"cross_entropy", "all_smooth", {in({2, 4}, logits)}, against({1, 2}, {.label_smoothing = 1})});
  rows.push_back({"cross_entropy", "all_ignored", {in({2, 4}, logits)}, against({-100, -100}, {.reduction = Reduction::sum})});
  rows.push_back({"cross_entropy", "empty", {in({0, 4}, logits)}, [](const Tensors& x) -> Results {
                    return cross_entropy(x[0], zeros({0}, i64), {.reduction = Reduction::sum});
                  }});
  rows.push_back({"cross_entropy",
                  "large",
                  {in({23, 71}, logits)},
                  [](const Tensors& x) -> Results { return cross_entropy(x[0], arange(0, 46, 2, i64)); },
                  Size::large});
  rows.push_back({"mse_loss", "without_dims", {in({}), in({})}, [](const Tensors& x) -> Results { return mse_loss(x[0], x[1]); }});
  rows.push_back({"mse_loss", "empty", {in({0}), in({0})}, [](const Tensors& x) -> Results { return mse_loss(x[0], x[1], Reduction::sum); }});
  rows.push_back({"mse_loss", "large", {in({23, 71}), in({23, 71})}, [](const Tensors& x) -> Results { return mse_loss(x[0], x[1]); }, Size::large});
  return rows;
}

}  // namespace heed::ops
