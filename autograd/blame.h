#pragma once

// Private to gradient checks: which op is to blame for a wrong gradient.

#include <functional>
#include <string>

#include "named_tensors.h"
#include "op.h"

namespace heed::detail {

/// Checks the backward of every recorded node of `fn` in isolation, against differences of that node alone, and says in a line or two which is wrong,
/// by what factor, and where it was called; or, when every node is right, which input of which node is cut off from the inputs it depends on.
std::string blame(const std::function<std::vector<Tensor>()>& fn, const NamedTensors& inputs, std::uint64_t seed);

/// What differences of single nodes say where those of the whole function see nothing: a node has no offset that is added, and no terms that cancel,
/// elsewhere.
struct NodesJudgment {
  enum class Verdict { right, wrong, undecided } verdict;
  std::string text;  ///< which node is wrong, or cannot be told
};
/// Checks every node between one input and the results.
NodesJudgment judge_nodes(const std::function<std::vector<Tensor>()>& fn, const std::string& name, const Tensor& input, std::uint64_t seed);

}  // namespace heed::detail
