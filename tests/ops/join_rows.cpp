#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {

std::vector<OpRow> join_rows() {
  return {
      {"cat", "two", {in({2, 3}), in({1, 3})}, [](const Tensors& x) -> Results { return cat(x); }},
      {"cat", "last_dim", {in({2, 1}), in({2, 3}), in({2, 2})}, [](const Tensors& x) -> Results { return cat(x, -1); }},
      {"cat", "one", {in({2, 3})}, [](const Tensors& x) -> Results { return cat(x, 1); }},
      {"cat", "five", {in({1}), in({2}), in({1}), in({3}), in({1})}, [](const Tensors& x) -> Results { return cat(x); }},
      {"cat",
       "the_same_twice",
       {in({2, 2}), in({2, 2})},
       [](const Tensors& x) -> Results {
         return cat({x[0], x[1], x[0]}, 1);
       }},
      {"cat", "empty", {in({0, 3}), in({2, 3})}, [](const Tensors& x) -> Results { return cat(x); }},
      {"cat", "large", {in({9, 35}), in({9, 4})}, [](const Tensors& x) -> Results { return cat(x, 1); }, Size::large},
      {"stack", "first_dim", {in({2, 3}), in({2, 3})}, [](const Tensors& x) -> Results { return stack(x); }},
      {"stack", "last_dim", {in({2, 3}), in({2, 3})}, [](const Tensors& x) -> Results { return stack(x, -1); }},
      {"stack", "without_dims", {in({}), in({}), in({})}, [](const Tensors& x) -> Results { return stack(x); }},
      {"stack", "empty", {in({0, 3}), in({0, 3})}, [](const Tensors& x) -> Results { return stack(x, 1); }},
      {"split", "uneven", {in({5, 2})}, [](const Tensors& x) -> Results { return split(x[0], 2); }},
      {"split", "last_dim", {in({2, 4})}, [](const Tensors& x) -> Results { return split(x[0], 2, -1); }},
      {"split", "five_parts", {in({5})}, [](const Tensors& x) -> Results { return split(x[0], 1); }},
      {"split",
       "one_part_unused",
       {in({6, 2})},
       [](const Tensors& x) -> Results {
         Tensors parts = split(x[0], 2);
         return Tensors{parts[0], parts[2]};
       }},
      {"split", "empty", {in({0, 2})}, [](const Tensors& x) -> Results { return split(x[0], 2); }},
      {"chunk", "even", {in({2, 6})}, [](const Tensors& x) -> Results { return chunk(x[0], 3, -1); }},
      {"chunk", "uneven", {in({5, 2})}, [](const Tensors& x) -> Results { return chunk(x[0], 3); }},
      {"chunk", "more_than_there_are", {in({2, 2})}, [](const Tensors& x) -> Results { return chunk(x[0], 4); }},
      {"chunk", "empty", {in({3, 0})}, [](const Tensors& x) -> Results { return chunk(x[0], 2); }},
  };
}

}  // namespace heed::ops
