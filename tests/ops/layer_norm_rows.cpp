#include <heed/autograd/ops.h>

#include <cmath>

#include "op_table.h"

namespace heed::ops {

std::vector<OpRow> layer_norm_rows() {
  const Range gain = between(0.5, 2);
  const auto plain = [](const Dims& over) { return [=](const Tensors& x) -> Results { return layer_norm(x[0], over); }; };
  const auto affine = [](const Dims& over) { return [=](const Tensors& x) -> Results { return layer_norm(x[0], over, x[1], x[2]); }; };
  return {
      {"layer_norm", "plain", {in({3, 4})}, plain(4)},
      {"layer_norm", "weight", {in({3, 4}), in({4}, gain)}, [](const Tensors& x) -> Results { return layer_norm(x[0], 4, x[1]); }},
      {"layer_norm", "bias", {in({3, 4}), in({4})}, [](const Tensors& x) -> Results { return layer_norm(x[0], 4, {}, x[1]); }},
      {"layer_norm", "weight_and_bias", {in({2, 2, 4}), in({4}, gain), in({4})}, affine(4)},
      {"layer_norm", "two_dims", {in({2, 3, 2}), in({3, 2}, gain), in({3, 2})}, affine({3, 2})},
      {"layer_norm", "vector", {in({5}), in({5}, gain), in({5})}, affine(5)},
      {"layer_norm",
       "large_eps",
       {in({3, 4}), in({4}, gain), in({4})},
       [](const Tensors& x) -> Results { return layer_norm(x[0], 4, x[1], x[2], 0.5); }},
      {"layer_norm", "one_column", {in({3, 1}), in({1}, gain), in({1})}, affine(1), Size::small, 1 / std::sqrt(1e-5)},
      {"layer_norm", "empty", {in({0, 4}), in({4}, gain), in({4})}, affine(4)},
      {"layer_norm", "no_columns", {in({3, 0}), in({0}, gain), in({0})}, affine(0)},
      {"layer_norm", "large", {in({17, 131}), in({131}, gain), in({131})}, affine(131), Size::large, 16},
  };
}

}  // namespace heed::ops
