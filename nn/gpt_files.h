#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "gpt.h"
#include "text/tokenizer.h"

namespace heed::nn {

/// The config as strings for a checkpoint, with keys that begin with "gpt.".
std::map<std::string, std::string> config_strings(const GPTConfig&);
/// And back. IoError for a string that is missing or no number.
GPTConfig config_from(const std::map<std::string, std::string>& strings);

/// The config.json that is published with GPT-2. IoError naming the key for one that is missing or of the wrong type, and for a model that GPT is
/// not: another activation than the tanh GELU, another inner size than 4 n_embd, scores that are not scaled by the root of the head's size,
/// cross-attention, a head of its own. Its three rates of dropout are one here: resid_pdrop.
GPTConfig gpt2_config(const std::filesystem::path& config_json);

/// GPT-2 as published: config.json and model.safetensors in a folder. IoError for bad files, and with the table of names and shapes that are not
/// those of the config; nothing larger than the files is allocated.
GPT load_gpt2(const std::filesystem::path& folder);
/// Writes the two files, each whole or not at all: what `load_gpt2` and the programs of others read.
void save_gpt2(const GPT&, const std::filesystem::path& folder);

/// A model that writes text.
struct LanguageModel {
  GPT model;                             ///< in evaluation mode
  std::unique_ptr<Tokenizer> tokenizer;  ///< of the tokens that the model knows; never null
};

/// From a checkpoint of `save_checkpoint` with `config_strings` and the tokenizer's metadata among its strings, or from a folder as GPT-2 is
/// published, with vocab.json and merges.txt beside the model. In evaluation mode. IoError when a part is missing or the parts do not fit.
LanguageModel load_language_model(const std::filesystem::path& file_or_folder);

}  // namespace heed::nn
