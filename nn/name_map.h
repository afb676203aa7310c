#pragma once

#include <map>
#include <string>
#include <vector>

#include "../tensor/tensor.h"

namespace heed::nn {

/// What becomes of a tensor that another program named.
enum class NameChange {
  rename,      ///< nothing but the name changes
  transpose,   ///< a matrix (in, out) becomes (out, in)
  split_rows,  ///< equal parts along dim 0, one for each new name
  ignore,      ///< it is not needed
};

/// `from` and `to` are names, in which a star stands for one part between dots, the same in both: {"h.*.ln_1.bias", {"blocks.*.norm.bias"}}.
struct NameRule {
  std::string from;                        ///< the other program's name
  std::vector<std::string> to = {};        ///< the module's: one name, several of split rows, none of what is ignored
  NameChange change = NameChange::rename;  ///< what happens to the elements
};

/// How names and layouts of another program become those of a module: data, not code.
struct NameMap {
  std::vector<NameRule> rules;       ///< the first that fits counts
  std::string optional_prefix = {};  ///< may stand before `from`
};

/// The tensors under the names of the module: views of those given. A name without a rule stays as it is, so that loading reports it as
/// unexpected. Error for two tensors that get one name, ShapeError for one that cannot be transposed or split.
std::map<std::string, Tensor> translate(const std::map<std::string, Tensor>& theirs, const NameMap&);

/// The other way: names of the module to those of the other program, without the prefix; split rows are joined again. Names without a rule stay.
/// Error when a part of what is to be joined is missing.
std::map<std::string, Tensor> translate_back(const std::map<std::string, Tensor>& ours, const NameMap&);

/// GPT-2 as published on model hubs: "transformer" and a dot may stand before the names, projections hold (in, out), the buffers `attn.bias` and
/// `attn.masked_bias` are not needed.
NameMap gpt2_names();

/// torch.nn.MultiheadAttention for nn::MultiHeadAttention, which has the same names.
NameMap torch_attention_names();
/// torch.nn.MultiheadAttention for a layer of four members `Linear`, called q, k, v and out.
NameMap torch_attention_names_of_linears();

}  // namespace heed::nn
