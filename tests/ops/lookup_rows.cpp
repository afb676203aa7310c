#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include "op_table.h"

namespace heed::ops {
namespace {

/// The same elements are dropped in every call.
Results drop(const Tensor& x, double p, bool training) {
  const RngState before = rng_state();
  manual_seed(11);
  Tensor y = dropout(x, p, training);
  set_rng_state(before);
  return y;
}

Tensor ids(const detail::Nested& values) { return tensor(values, i64); }

/// `count` ids below n, each many times.
Tensor many_ids(Index count, Index n) {
  std::vector<Index> all;
  for (Index i = 0; i < count; ++i) all.push_back(i * i % n);
  return from_vector(all, {count});
}

}  // namespace

std::vector<OpRow> lookup_rows() {
  return {
      {"embedding",
       "matrix_of_ids",
       {in({5, 3})},
       [](const Tensors& x) -> Results {
         return embedding(ids({{0, 4}, {2, 1}}), x[0]);
       }},
      {"embedding",
       "repeated",
       {in({4, 2})},
       [](const Tensors& x) -> Results {
         return embedding(ids({1, 1, 2, 1}), x[0]);
       }},
      {"embedding", "one_id", {in({4, 2})}, [](const Tensors& x) -> Results { return embedding(ids(3), x[0]); }},
      {"embedding", "no_ids", {in({4, 2})}, [](const Tensors& x) -> Results { return embedding(zeros({0}, i64), x[0]); }},
      {"embedding",
       "empty",
       {in({4, 0})},
       [](const Tensors& x) -> Results {
         return embedding(ids({1, 3}), x[0]);
       }},
      {"embedding", "large", {in({50, 37})}, [](const Tensors& x) -> Results { return embedding(many_ids(400, 50), x[0]); }, Size::large},
      {"gather",
       "first_dim",
       {in({3, 2})},
       [](const Tensors& x) -> Results {
         return gather(x[0], 0, ids({{2, 0}, {2, 1}}));
       }},
      {"gather",
       "last_dim",
       {in({2, 4})},
       [](const Tensors& x) -> Results {
         return gather(x[0], -1, ids({{3, 0, 0}, {1, 2, 1}}));
       }},
      {"gather",
       "fewer_rows",
       {in({3, 4})},
       [](const Tensors& x) -> Results {
         return gather(x[0], 1, ids({{3, 0}}));
       }},
      {"gather",
       "middle_dim",
       {in({2, 3, 2})},
       [](const Tensors& x) -> Results {
         return gather(x[0], 1, ids({{{2, 0}}, {{1, 1}}}));
       }},
      {"gather",
       "no_index",
       {in({2, 3})},
       [](const Tensors& x) -> Results {
         return gather(x[0], 1, zeros({2, 0}, i64));
       }},
      {"gather",
       "empty",
       {in({0, 3})},
       [](const Tensors& x) -> Results {
         return gather(x[0], 1, zeros({0, 2}, i64));
       }},
      {"dropout", "training", {in({4, 5})}, [](const Tensors& x) -> Results { return drop(x[0], 0.4, true); }},
      {"dropout", "not_training", {in({2, 3})}, [](const Tensors& x) -> Results { return drop(x[0], 0.4, false); }},
      {"dropout", "nothing", {in({2, 3})}, [](const Tensors& x) -> Results { return drop(x[0], 0, true); }},
      {"dropout", "everything", {in({2, 3})}, [](const Tensors& x) -> Results { return drop(x[0], 1, true); }},
      {"dropout", "empty", {in({0, 3})}, [](const Tensors& x) -> Results { return drop(x[0], 0.4, true); }},
      {"dropout", "large", {in({31, 67})}, [](const Tensors& x) -> Results { return drop(x[0], 0.4, true); }, Size::large},
      {"detail::dropout_from",
       "some",
       {in({4, 5})},
       [](const Tensors& x) -> Results {
         return detail::dropout_from(x[0], 0.4, {11, 6});
       }},
      {"detail::dropout_from", "everything", {in({2, 3})}, [](const Tensors& x) -> Results { return detail::dropout_from(x[0], 1, {}); }},
      {"detail::dropout_from",
       "empty",
       {in({2, 0})},
       [](const Tensors& x) -> Results {
         return detail::dropout_from(x[0], 0.4, {11, 6});
       }},
      {"detail::embedding_backward",
       "repeated",
       {in({4, 2})},
       [](const Tensors& x) -> Results {
         return detail::embedding_backward(x[0], ids({1, 1, 2, 1}), 4);
       }},
      {"detail::embedding_backward",
       "empty",
       {in({0, 2})},
       [](const Tensors& x) -> Results { return detail::embedding_backward(x[0], zeros({0}, i64), 3); }},
      {"detail::scatter_add",
       "repeated",
       {in({2, 2})},
       [](const Tensors& x) -> Results {
         return detail::scatter_add(x[0], {3, 2}, 0, ids({{2, 0}, {2, 1}}));
       }},
      {"detail::scatter_add",
       "part_of_the_rows",
       {in({1, 2})},
       [](const Tensors& x) -> Results {
         return detail::scatter_add(x[0], {3, 4}, 1, ids({{3, 3}}));
       }},
      {"detail::scatter_add",
       "empty",
       {in({2, 0})},
       [](const Tensors& x) -> Results {
         return detail::scatter_add(x[0], {2, 3}, 1, zeros({2, 0}, i64));
       }},
  };
}

}  // namespace heed::ops
