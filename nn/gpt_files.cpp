#include "gpt_files.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "../tensor/io/file.h"
#include "../tensor/io/safetensors.h"
#include "../tensor/raise.h"
#include "checkpoint.h"
#include "name_map.h"
#include "text/bpe.h"

namespace heed::nn {
namespace {

using detail::raise;
using nlohmann::json;
using State = std::map<std::string, Tensor>;

struct Member {
  const char* key;
  Index GPTConfig::*value;
};
constexpr Member sizes[] = {{"gpt.vocab_size", &GPTConfig::vocab_size},
                            {"gpt.block_size", &GPTConfig::block_size},
                            {"gpt.n_layer", &GPTConfig::n_layer},
                            {"gpt.n_head", &GPTConfig::n_head},
                            {"gpt.n_embd", &GPTConfig::n_embd}};
struct Number {
  const char* key;
  double GPTConfig::*value;
};
constexpr Number numbers[] = {{"gpt.dropout", &GPTConfig::dropout}, {"gpt.layer_norm_epsilon", &GPTConfig::layer_norm_epsilon}};

template <class T>
T read_number(const std::map<std::string, std::string>& strings, const char* key) {
  const auto found = strings.find(key);
  if (found == strings.end()) raise<IoError>("config_from: there is no {}", key);
  const std::string& text = found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) raise<IoError>("config_from: {} is no number: {}", key, text.substr(0, 100));
  return value;
}

/// A model of the config with the elements of `state`. The sizes are held against the tensors first: a config alone may ask for any amount of memory.
GPT model_from(const std::string& where, const GPTConfig& config, const State& state) {
  const auto check = [&](const std::string& name, const Dims& shape) {
    const auto found = state.find(name);
    if (found == state.end()) raise<IoError>("{}: the config asks for {} {}, which is not there", where, name, shape);
    if (found->second.shape() != shape) raise<IoError>("{}: the config asks for {} {}, which is {}", where, name, shape, found->second.shape());
  };
  for (const Member& m : sizes)
    if (config.*m.value < 1) raise<IoError>("{}: {} is below 1: {}", where, m.key, config.*m.value);
  check("transformer.wte.weight", {config.vocab_size, config.n_embd});
  check("transformer.wpe.weight", {config.block_size, config.n_embd});
  if (config.n_layer > static_cast<Index>(state.size())) raise<IoError>("{}: {} layers in {} tensors", where, config.n_layer, state.size());
  for (Index i = 0; i < config.n_layer; ++i) check(fmt::format("transformer.h.{}.mlp.c_fc.weight", i), {4 * config.n_embd, config.n_embd});
  try {
    GPT model(config);
    load_state_dict(model, state);
    return model;
  } catch (const Error& e) {  // of the config's other numbers, or the table
    raise<IoError>("{}: {}", where, e.what());
  }
}

}  // namespace

std::map<std::string, std::string> config_strings(const GPTConfig& config) {
  std::map<std::string, std::string> out;
  for (const Member& m : sizes) out[m.key] = std::to_string(config.*m.value);
  for (const Number& n : numbers) out[n.key] = fmt::format("{}", config.*n.value);
  return out;
}

GPTConfig config_from(const std::map<std::string, std::string>& strings) {
  GPTConfig config;
  for (const Member& m : sizes) config.*m.value = read_number<Index>(strings, m.key);
  for (const Number& n : numbers) config.*n.value = read_number<double>(strings, n.key);
  return config;
}

// GPT-2 as published

namespace {

constexpr std::uint64_t config_limit = 1 << 20;

/// The members of a config.json, each asked for with the type it must have.
class Config {
 public:
  explicit Config(const std::filesystem::path& path) : where_("gpt2_config: " + path.string()) {
    detail::FileSource in("gpt2_config", path);
    if (in.size() > config_limit) raise<IoError>("{}: a config of {} bytes: at most {} are read", where_, in.size(), config_limit);
    std::string text(static_cast<std::size_t>(in.size()), '\0');
    in.read(0, std::as_writable_bytes(std::span(text)));
    values_ = json::parse(text, nullptr, false);
    if (!values_.is_object()) raise<IoError>("{}: not a JSON object", where_);
  }

  Index size(const char* key) const {
    const json* value = find(key);
    if (!value) raise<IoError>("{}: there is no {}", where_, key);
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() > std::uint64_t{1} << 40) wrong(key, "not a size");
    return value->get<Index>();
  }
  double number(const char* key, double absent) const {
    const json* value = find(key);
    if (value && !value->is_number()) wrong(key, "not a number");
    return value ? value->get<double>() : absent;
  }
  /// What GPT does and nothing else, absent or said.
  void must_be(const char* key, const std::vector<json>& allowed) const {
    const json* value = find(key);
    if (value && std::find(allowed.begin(), allowed.end(), *value) == allowed.end()) wrong(key, "a model that GPT is not");
  }

 private:
  const json* find(const char* key) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void wrong(const char* key, const char* rule) const {
    raise<IoError>("{}: {}: {}: {}", where_, key, rule, values_.at(key).dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 100));
  }

  std::string where_;
  json values_;
};

}  // namespace

GPTConfig gpt2_config(const std::filesystem::path& config_json) {
  const Config file(config_json);
  file.must_be("model_type", {"gpt2"});
  file.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  file.must_be("scale_attn_weights", {true});
  file.must_be("scale_attn_by_inverse_layer_idx", {false});
  file.must_be("add_cross_attention", {false});
  file.must_be("tie_word_embeddings", {true});
  GPTConfig config{.vocab_size = file.size("vocab_size"),
                   .block_size = file.size("n_positions"),
                   .n_layer = file.size("n_layer"),
                   .n_head = file.size("n_head"),
                   .n_embd = file.size("n_embd"),
                   .dropout = file.number("resid_pdrop", 0.1),
                   .layer_norm_epsilon = file.number("layer_norm_epsilon", 1e-5)};
  file.must_be("n_inner", {4 * config.n_embd});
  return config;
}

GPT load_gpt2(const std::filesystem::path& folder) {
  const GPTConfig config = gpt2_config(folder / "config.json");
  const std::filesystem::path file = folder / "model.safetensors";
  return model_from("load_gpt2: " + file.string(), config, translate(load_safetensors(file), gpt2_names()));
}

void save_gpt2(const GPT& model, const std::filesystem::path& folder) {
  State state = state_dict(model);
  state.erase("lm_head.weight");  // as published: it is wte.weight
  const GPTConfig& c = model.config();
  const json config{{"activation_function", "gelu_new"},
                    {"architectures", {"GPT2LMHeadModel"}},
                    {"attn_pdrop", c.dropout},
                    {"embd_pdrop", c.dropout},
                    {"layer_norm_epsilon", c.layer_norm_epsilon},
                    {"model_type", "gpt2"},
                    {"n_ctx", c.block_size},
                    {"n_embd", c.n_embd},
                    {"n_head", c.n_head},
                    {"n_layer", c.n_layer},
                    {"n_positions", c.block_size},
                    {"resid_pdrop", c.dropout},
                    {"vocab_size", c.vocab_size}};
  save_safetensors(folder / "model.safetensors", translate_back(state, gpt2_names()), {{"format", "pt"}});
  const std::string text = config.dump(2) + "\n";
  detail::AtomicFile out("save_gpt2", folder / "config.json");
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

LanguageModel load_language_model(const std::filesystem::path& path) {
  const std::string where = "load_language_model: " + path.string();
  std::error_code ignored;
  std::optional<LanguageModel> out;
  if (std::filesystem::is_directory(path, ignored)) {
    out.emplace(LanguageModel{load_gpt2(path), std::make_unique<BpeTokenizer>(BpeTokenizer::load(path))});
  } else {
    const Checkpoint checkpoint = load_checkpoint(path);
    out.emplace(LanguageModel{model_from(where, config_from(checkpoint.strings), checkpoint.model), tokenizer_from(checkpoint.strings)});
  }
  if (out->tokenizer->vocab_size() != out->model.config().vocab_size)
    raise<IoError>("{}: a tokenizer of {} tokens for a model of {}", where, out->tokenizer->vocab_size(), out->model.config().vocab_size);
  train(out->model, false);
  return std::move(*out);
}

}  // namespace heed::nn
