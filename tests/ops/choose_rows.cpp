#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {
namespace {

Tensor checkers() { return tensor({{1, 0, 1, 0}, {0, 1, 0, 1}, {1, 0, 1, 0}}, boolean); }

}  // namespace

std::vector<OpRow> choose_rows() {
  const Range spread = distinct(-1, 1);
  return {
      {"clamp", "both", {in({3, 4}, spread)}, [](const Tensors& x) -> Results { return clamp(x[0], -0.55, 0.55); }},
      {"clamp", "low", {in({3, 4}, spread)}, [](const Tensors& x) -> Results { return clamp(x[0], -0.55); }},
      {"clamp", "high", {in({3, 4}, spread)}, [](const Tensors& x) -> Results { return clamp(x[0], {}, 0.55); }},
      {"clamp", "unbounded", {in({3, 4}, spread)}, [](const Tensors& x) -> Results { return clamp(x[0], {}); }},
      {"clamp", "empty", {in({3, 0}, spread)}, [](const Tensors& x) -> Results { return clamp(x[0], -0.5, 0.5); }},
      {"clamp", "large", {in({9, 41}, spread)}, [](const Tensors& x) -> Results { return clamp(x[0], -0.5, 0.25); }, Size::large},

      {"where", "same_shape", {in({3, 4}), in({3, 4})}, [](const Tensors& x) -> Results { return where(checkers(), x[0], x[1]); }},
      {"where", "broadcast", {in({3, 1}), in({2, 1, 4})}, [](const Tensors& x) -> Results { return where(checkers(), x[0], x[1]); }},
      {"where",
       "broadcast_condition",
       {in({3, 2}), in({2})},
       [](const Tensors& x) -> Results {
         return where(tensor({1, 0}, boolean), x[0], x[1]);
       }},
      {"where", "number_left", {in({3, 4})}, [](const Tensors& x) -> Results { return where(checkers(), 2.5, x[0]); }},
      {"where", "number_right", {in({3, 4})}, [](const Tensors& x) -> Results { return where(checkers(), x[0], 0); }},
      {"where",
       "empty",
       {in({0, 4}), in({1, 4})},
       [](const Tensors& x) -> Results {
         return where(zeros({0, 1}, boolean), x[0], x[1]);
       }},
      {"where", "large", {in({17, 33}), in({33})}, [](const Tensors& x) -> Results { return where(gt(x[0], 0.1), x[0], x[1]); }, Size::large},

      {"masked_fill", "number", {in({3, 4})}, [](const Tensors& x) -> Results { return masked_fill(x[0], checkers(), -2.5); }},
      {"masked_fill", "tensor", {in({3, 4}), in({})}, [](const Tensors& x) -> Results { return masked_fill(x[0], checkers(), x[1]); }},
      {"masked_fill",
       "tensor_of_higher_rank",
       {in({4}), in({1, 1})},
       [](const Tensors& x) -> Results {
         return masked_fill(x[0], tensor({1, 0, 0, 1}, boolean), x[1]);
       }},
      {"masked_fill",
       "broadcast_mask",
       {in({2, 3, 4})},
       [](const Tensors& x) -> Results {
         return masked_fill(x[0], tensor({{1}, {0}, {1}}, boolean), 3);
       }},
      {"masked_fill", "empty", {in({3, 0})}, [](const Tensors& x) -> Results { return masked_fill(x[0], ones({1}, boolean), 1); }},

      {"tril", "square", {in({3, 3})}, [](const Tensors& x) -> Results { return tril(x[0]); }},
      {"tril", "above", {in({3, 5})}, [](const Tensors& x) -> Results { return tril(x[0], 1); }},
      {"tril", "below", {in({2, 4, 3})}, [](const Tensors& x) -> Results { return tril(x[0], -1); }},
      {"tril", "empty", {in({0, 4, 3})}, [](const Tensors& x) -> Results { return tril(x[0], -1); }},
      {"triu", "square", {in({3, 3})}, [](const Tensors& x) -> Results { return triu(x[0]); }},
      {"triu", "above", {in({3, 5})}, [](const Tensors& x) -> Results { return triu(x[0], 1); }},
      {"triu", "below", {in({2, 4, 3})}, [](const Tensors& x) -> Results { return triu(x[0], -1); }},
      {"triu", "empty", {in({0, 3})}, [](const Tensors& x) -> Results { return triu(x[0]); }},
  };
}

}  // namespace heed::ops
