#include "op_table.h"

#include <heed/tensor/factory.h>

#include <algorithm>
#include <ostream>
#include <random>

namespace heed::ops {
namespace {

/// The bits of the generator, not a distribution of the standard library: those differ between compilers.
double unit(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

std::vector<double> draw(const Range& range, std::size_t n, std::mt19937_64& random) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double place = range.kind == Range::Kind::distinct ? (n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0.5) : unit(random);
    values[i] = range.low + (range.high - range.low) * place;
    if (range.kind == Range::Kind::either_sign && random() % 2) values[i] = -values[i];
  }
  if (range.kind == Range::Kind::distinct)
    for (std::size_t i = n; i > 1; --i) std::swap(values[i - 1], values[random() % i]);
  for (double& v : values) v = static_cast<double>(static_cast<float>(v));
  return values;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const OpRow& row) { return out << row.name << " (" << row.variant << ")"; }

const std::vector<OpRow>& op_table() {
  static const std::vector<OpRow> table = [] {
    std::vector<OpRow> all;
    for (const auto family : {arithmetic_rows, pointwise_rows, choose_rows, logic_rows, reduce_rows, view_rows, join_rows, matmul_rows, softmax_rows,
                              layer_norm_rows, lookup_rows, loss_rows, attention_rows})
      for (OpRow& row : family()) all.push_back(std::move(row));
    return all;
  }();
  return table;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpRow& row : op_table())
    if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
  return names;
}

Tensors make_inputs(const OpRow& row, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensors inputs;
  for (const Input& input : row.inputs)
    inputs.push_back(from_vector(draw(input.range, static_cast<std::size_t>(detail::numel(input.shape)), random), input.shape).to(dtype));
  return inputs;
}

}  // namespace heed::ops
