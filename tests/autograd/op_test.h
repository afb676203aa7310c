#pragma once

#include <gtest/gtest.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/ops.h>

#include <exception>
#include <random>
#include <string>

#include "close.h"
#include "op_table.h"

// Tests over all rows of the op table: one test for each op and property, which goes through the op's variants.

namespace heed::test {

using ops::OpRow;
using ops::Results;
using ops::Tensors;

class OpTest : public testing::TestWithParam<std::string> {
 protected:
  /// Calls `check(row)` for every row of the op; an exception is a failure of its row.
  template <class F>
  void for_each_row(F check) {
    for (const OpRow& row : ops::op_table()) {
      if (row.name != GetParam()) continue;
      SCOPED_TRACE(row.name + " (" + row.variant + ")");
      try {
        check(row);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "thrown: " << e.what();
      }
    }
  }
};

/// The op's name in letters: names of tests have no other characters.
inline std::string test_name(const testing::TestParamInfo<std::string>& info) {
  static const std::pair<const char*, const char*> words[] = {{"operator+", "plus"},    {"operator-", "minus"}, {"operator*", "times"},
                                                              {"operator/", "divided"}, {"operator&", "and"},   {"operator|", "or"},
                                                              {"operator!", "not"},     {"operator[]", "at"}};
  for (const auto& [symbol, word] : words)
    if (info.param == symbol) return word;
  std::string name = info.param;
  if (const std::size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, "_");
  return name;
}

inline Tensors& require_grads(Tensors& leaves) {
  for (Tensor& leaf : leaves) leaf.requires_grad_();
  return leaves;
}

/// New leaves with the values of `tensors`.
inline Tensors copies(const Tensors& tensors) {
  const NoGrad off;
  Tensors out;
  for (const Tensor& t : tensors) out.push_back(t.clone());
  return out;
}

/// Random tensors shaped like `like`, with values of either sign away from 0 and 1.
inline Tensors cotangents(const Tensors& like, std::uint64_t seed = 2) {
  std::mt19937_64 random(seed);
  Tensors out;
  for (const Tensor& t : like) {
    std::vector<double> values(static_cast<std::size_t>(t.numel()));
    for (double& v : values) v = (random() % 2 ? 1 : -1) * static_cast<double>(5 + random() % 15) / 8.0;
    out.push_back(from_vector(values, t.shape()).to(t.dtype()));
  }
  return out;
}

/// Those outputs that have a history.
inline Tensors differentiable(const Tensors& outputs) {
  Tensors out;
  for (const Tensor& t : outputs)
    if (t.requires_grad()) out.push_back(t);
  return out;
}

/// d sum(outputs * cotangents) / d inputs; undefined where nothing depends on an input, and for all when no output has a history.
inline Tensors gradients(const Tensors& outputs, const Tensors& inputs, const Tensors& along, GradOptions options = {}) {
  Tensors roots, starts;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].requires_grad()) roots.push_back(outputs[i]), starts.push_back(along[i]);
  if (roots.empty()) return Tensors(inputs.size());
  options.allow_unused = true;
  return grad(roots, inputs, starts, options);
}

}  // namespace heed::test
