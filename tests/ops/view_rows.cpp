#include <heed/autograd/ops.h>

#include "op_table.h"

namespace heed::ops {

std::vector<OpRow> view_rows() {
  return {
      {"reshape",
       "split",
       {in({2, 6})},
       [](const Tensors& x) -> Results {
         return reshape(x[0], {2, 3, 2});
       }},
      {"reshape",
       "merge",
       {in({2, 3, 2})},
       [](const Tensors& x) -> Results {
         return reshape(x[0], {6, 2});
       }},
      {"reshape",
       "inferred",
       {in({4, 3})},
       [](const Tensors& x) -> Results {
         return reshape(x[0], {2, -1});
       }},
      {"reshape",
       "of_transposed",
       {in({2, 3})},
       [](const Tensors& x) -> Results {
         return reshape(transpose(x[0], 0, 1), {2, 3});
       }},
      {"reshape", "without_dims", {in({1, 1})}, [](const Tensors& x) -> Results { return reshape(x[0], {}); }},
      {"reshape",
       "empty",
       {in({2, 0, 3})},
       [](const Tensors& x) -> Results {
         return reshape(x[0], {0, 5});
       }},
      {"flatten", "all", {in({2, 3, 2})}, [](const Tensors& x) -> Results { return flatten(x[0]); }},
      {"flatten", "from_dim", {in({2, 3, 2})}, [](const Tensors& x) -> Results { return flatten(x[0], 1); }},
      {"flatten", "middle", {in({2, 2, 3, 1})}, [](const Tensors& x) -> Results { return flatten(x[0], 1, -2); }},
      {"flatten", "without_dims", {in({})}, [](const Tensors& x) -> Results { return flatten(x[0]); }},
      {"flatten", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return flatten(x[0]); }},
      {"transpose", "matrix", {in({2, 3})}, [](const Tensors& x) -> Results { return transpose(x[0], 0, 1); }},
      {"transpose", "negative", {in({2, 3, 2})}, [](const Tensors& x) -> Results { return transpose(x[0], -1, 0); }},
      {"transpose", "itself", {in({2, 3})}, [](const Tensors& x) -> Results { return transpose(x[0], 1, 1); }},
      {"transpose", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return transpose(x[0], 0, 1); }},
      {"permute",
       "cycle",
       {in({2, 3, 4})},
       [](const Tensors& x) -> Results {
         return permute(x[0], {2, 0, 1});
       }},
      {"permute",
       "negative",
       {in({2, 3, 2})},
       [](const Tensors& x) -> Results {
         return permute(x[0], {0, -1, 1});
       }},
      {"permute", "without_dims", {in({})}, [](const Tensors& x) -> Results { return permute(x[0], {}); }},
      {"permute",
       "empty",
       {in({2, 0, 4})},
       [](const Tensors& x) -> Results {
         return permute(x[0], {2, 0, 1});
       }},
      {"squeeze", "all", {in({1, 3, 1, 2})}, [](const Tensors& x) -> Results { return squeeze(x[0]); }},
      {"squeeze", "dim", {in({1, 3, 1})}, [](const Tensors& x) -> Results { return squeeze(x[0], -1); }},
      {"squeeze", "of_larger_size", {in({1, 3})}, [](const Tensors& x) -> Results { return squeeze(x[0], 1); }},
      {"squeeze", "empty", {in({1, 0})}, [](const Tensors& x) -> Results { return squeeze(x[0], 0); }},
      {"unsqueeze", "front", {in({2, 3})}, [](const Tensors& x) -> Results { return unsqueeze(x[0], 0); }},
      {"unsqueeze", "middle", {in({2, 3})}, [](const Tensors& x) -> Results { return unsqueeze(x[0], 1); }},
      {"unsqueeze", "back", {in({2, 3})}, [](const Tensors& x) -> Results { return unsqueeze(x[0], -1); }},
      {"unsqueeze", "without_dims", {in({})}, [](const Tensors& x) -> Results { return unsqueeze(x[0], 0); }},
      {"unsqueeze", "empty", {in({0, 3})}, [](const Tensors& x) -> Results { return unsqueeze(x[0], 1); }},
      {"expand",
       "size_1",
       {in({3, 1})},
       [](const Tensors& x) -> Results {
         return expand(x[0], {3, 4});
       }},
      {"expand",
       "new_dims",
       {in({3, 1})},
       [](const Tensors& x) -> Results {
         return expand(x[0], {2, -1, 2});
       }},
      {"expand",
       "without_dims",
       {in({})},
       [](const Tensors& x) -> Results {
         return expand(x[0], {2, 3});
       }},
      {"expand",
       "to_nothing",
       {in({1, 3})},
       [](const Tensors& x) -> Results {
         return expand(x[0], {0, 3});
       }},
      {"expand",
       "empty",
       {in({0, 1})},
       [](const Tensors& x) -> Results {
         return expand(x[0], {2, 0, 3});
       }},
      {"slice", "range", {in({5, 2})}, [](const Tensors& x) -> Results { return slice(x[0], 0, 1, 4); }},
      {"slice", "step", {in({2, 7})}, [](const Tensors& x) -> Results { return slice(x[0], 1, 1, 7, 3); }},
      {"slice", "negative", {in({2, 5})}, [](const Tensors& x) -> Results { return slice(x[0], -1, -4, -1, 2); }},
      {"slice", "clamped", {in({3, 2})}, [](const Tensors& x) -> Results { return slice(x[0], 0, -9, 9); }},
      {"slice", "huge_step", {in({3, 2})}, [](const Tensors& x) -> Results { return slice(x[0], 0, 1, 3, INT64_MAX); }},
      {"slice", "to_nothing", {in({3, 2})}, [](const Tensors& x) -> Results { return slice(x[0], 0, 2, 1); }},
      {"slice", "empty", {in({0, 2})}, [](const Tensors& x) -> Results { return slice(x[0], 1, 0, 1); }},
      {"select", "first_dim", {in({3, 4})}, [](const Tensors& x) -> Results { return select(x[0], 0, 1); }},
      {"select", "negative", {in({2, 3, 2})}, [](const Tensors& x) -> Results { return select(x[0], -2, -1); }},
      {"select", "to_number", {in({3})}, [](const Tensors& x) -> Results { return select(x[0], 0, 2); }},
      {"select", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return select(x[0], 0, 1); }},
      {"operator[]", "twice", {in({3, 4})}, [](const Tensors& x) -> Results { return x[0][1][-1]; }},
      {"operator[]", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return x[0][-2]; }},
      {"clone", "matrix", {in({2, 3})}, [](const Tensors& x) -> Results { return x[0].clone(); }},
      {"clone",
       "of_expanded",
       {in({2, 1})},
       [](const Tensors& x) -> Results {
         return expand(x[0], {2, 3}).clone();
       }},
      {"clone", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return x[0].clone(); }},
      {"contiguous", "of_transposed", {in({2, 3})}, [](const Tensors& x) -> Results { return transpose(x[0], 0, 1).contiguous(); }},
      {"contiguous", "itself", {in({2, 3})}, [](const Tensors& x) -> Results { return x[0].contiguous(); }},
      {"contiguous", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return x[0].contiguous(); }},
      {"to", "f64", {in({2, 3})}, [](const Tensors& x) -> Results { return x[0].to(f64); }},
      {"to", "i64", {in({2, 3}, distinct(-3.7, 3.7))}, [](const Tensors& x) -> Results { return x[0].to(i64); }},
      {"to", "boolean", {in({2, 3})}, [](const Tensors& x) -> Results { return relu(x[0]).to(boolean); }},
      {"to", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return x[0].to(f64); }},
      {"detail::alias", "matrix", {in({2, 3})}, [](const Tensors& x) -> Results { return detail::alias(x[0]); }},
      {"detail::alias", "empty", {in({2, 0})}, [](const Tensors& x) -> Results { return detail::alias(x[0]); }},
      {"detail::slice_backward",
       "range",
       {in({2, 2})},
       [](const Tensors& x) -> Results {
         return detail::slice_backward(x[0], {5, 2}, 0, 1, 1);
       }},
      {"detail::slice_backward",
       "step",
       {in({2, 3})},
       [](const Tensors& x) -> Results {
         return detail::slice_backward(x[0], {2, 6}, 1, 0, 2);
       }},
      {"detail::slice_backward",
       "empty",
       {in({0, 2})},
       [](const Tensors& x) -> Results {
         return detail::slice_backward(x[0], {3, 2}, 0, 3, 1);
       }},
      {"detail::sum_to", "lower_rank", {in({2, 3, 2})}, [](const Tensors& x) -> Results { return detail::sum_to(x[0], {2}); }},
      {"detail::sum_to",
       "size_1",
       {in({2, 3, 2})},
       [](const Tensors& x) -> Results {
         return detail::sum_to(x[0], {2, 1, 1});
       }},
      {"detail::sum_to",
       "itself",
       {in({2, 3})},
       [](const Tensors& x) -> Results {
         return detail::sum_to(x[0], {2, 3});
       }},
      {"detail::sum_to",
       "empty",
       {in({0, 3})},
       [](const Tensors& x) -> Results {
         return detail::sum_to(x[0], {1, 3});
       }},
  };
}

}  // namespace heed::ops
