#include <fstream>
#include <iterator>

#include "support.h"

// GPT-2 as published, and models with their tokenizers in one file.

namespace heed {
namespace {

using test::message_of;
using test::near;
using test::values;
namespace fs = std::filesystem;

const fs::path golden = fs::path(HEED_SOURCE_DIR) / "tests/golden/gpt2";

/// A folder with copies of the published files.
class Folder {
 public:
  explicit Folder(const std::string& weights = "model") {
    fs::copy_file(golden / "config.json", path() / "config.json");
    fs::copy_file(golden / (weights + ".safetensors"), path() / "model.safetensors");
  }
  const fs::path& path() const { return folder_.path(); }

  /// Replaces a part of config.json.
  void edit(const std::string& from, const std::string& to) const {
    std::ifstream in(path() / "config.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(path() / "config.json") << text.replace(at, from.size(), to);
  }

 private:
  test::TemporaryFolder folder_;
};

TEST(Gpt2, GivesPyTorchsLogitsFromEveryPublishedForm) {
  const auto want = load_safetensors(golden / "logits.safetensors");
  const std::pair<const char*, const char*> forms[] = {{"model", "f32"}, {"prefixed", "f32"}, {"f16", "f16"}, {"bf16", "bf16"}};
  for (const auto& [file, logits] : forms) {
    const Folder folder(file);
    nn::GPT model = nn::load_gpt2(folder.path());
    EXPECT_EQ(model.config().n_head, 3);
    nn::train(model, false);
    EXPECT_TRUE(near(model(want.at("idx")), want.at(logits), 2e-5)) << file;
    nn::to(model, f64);
    EXPECT_TRUE(near(model(want.at("idx")), want.at(logits), 1e-12)) << file;
  }
}

TEST(Gpt2, IsWrittenAsItIsRead) {
  const Folder folder;
  const nn::GPT model = nn::load_gpt2(folder.path());
  nn::save_gpt2(model, folder.path());
  const auto published = load_safetensors(golden / "f16.safetensors"), written = load_safetensors(folder.path() / "model.safetensors");
  ASSERT_EQ(written.size(), published.size());
  for (const auto& [name, t] : published) EXPECT_EQ(written.at(name).shape(), t.shape()) << name;
  const nn::GPT again = nn::load_gpt2(folder.path());
  for (const auto& [name, t] : nn::state_dict(model)) EXPECT_EQ(values(nn::state_dict(again).at(name)), values(t)) << name;
  EXPECT_EQ(again.config().dropout, 0.1);
}

TEST(Gpt2, RefusesConfigsOfOtherModelsAndBadOnes) {
  const std::tuple<const char*, const char*, const char*> edits[] = {
      {"\"gelu_new\"", "\"relu\"", "activation_function"},
      {"\"model_type\": \"gpt2\"", "\"model_type\": \"bert\"", "model_type"},
      {"\"n_ctx\": 16", "\"n_inner\": 100", "n_inner"},
      {"\"n_ctx\": 16", "\"tie_word_embeddings\": false", "tie_word_embeddings"},
      {"\"n_ctx\": 16", "\"scale_attn_weights\": false", "scale_attn_weights"},
      {"\"n_ctx\": 16", "\"add_cross_attention\": true", "add_cross_attention"},
      {"\"n_ctx\": 16", "\"scale_attn_by_inverse_layer_idx\": true", "scale_attn_by_inverse_layer_idx"},
      {"\"n_embd\": 12", "\"n_embd\": \"12\"", "n_embd"},
      {"\"n_embd\": 12", "\"n_embd\": -12", "n_embd"},
      {"\"n_embd\": 12", "\"n_embd\": 1e300", "n_embd"},
      {"\"n_embd\": 12", "\"n_embd\": 1000000000", "wte"},
      {"\"n_embd\": 12", "\"other\": 12", "n_embd"},
      {"\"n_layer\": 2", "\"n_layer\": 3", "h.2.mlp.c_fc.weight"},
      {"\"n_layer\": 2", "\"n_layer\": 1", "unexpected  transformer.h.1."},
      {"\"n_layer\": 2", "\"n_layer\": 1000000000", "layers"},
      {"\"n_layer\": 2", "\"n_layer\": 0", "below 1"},
      {"\"n_head\": 3", "\"n_head\": 5", "n_head"},
      {"\"n_positions\": 16", "\"n_positions\": 1024", "wpe"},
      {"\"vocab_size\": 41", "\"vocab_size\": 50257", "wte"},
      {"\"resid_pdrop\": 0.1", "\"resid_pdrop\": \"no\"", "resid_pdrop"},
      {"\"resid_pdrop\": 0.1", "\"resid_pdrop\": 7", "dropout"},
      {"{", "[{", "JSON"},
  };
  for (const auto& [from, to, part] : edits) {
    const Folder folder;
    folder.edit(from, to);
    const std::string text = message_of<IoError>([&] { nn::load_gpt2(folder.path()); });
    EXPECT_NE(text.find(part), std::string::npos) << to << ": " << text;
  }
}

TEST(Gpt2, OfAnUntiedHeadIsRefused) {
  const Folder folder("prefixed");
  auto state = load_safetensors(folder.path() / "model.safetensors");
  state["lm_head.weight"] = state.at("lm_head.weight") * 2;
  save_safetensors(folder.path() / "model.safetensors", state);
  const std::string text = message_of<IoError>([&] { nn::load_gpt2(folder.path()); });
  EXPECT_NE(text.find("tied to"), std::string::npos) << text;
  fs::remove(folder.path() / "model.safetensors");
  EXPECT_THROW(nn::load_gpt2(folder.path()), IoError);
}

TEST(LanguageModel, IsOneFile) {
  const std::string text = "the cat sat on the mat \xC3\xA9";
  const nn::CharTokenizer tokenizer(text);
  const nn::GPTConfig config{.vocab_size = tokenizer.vocab_size(), .block_size = 8, .n_layer = 1, .n_head = 2, .n_embd = 8, .dropout = 0.25};
  nn::GPT model(config);
  nn::AdamW adam(nn::decay_groups(model));
  auto strings = nn::config_strings(config);
  strings.merge(tokenizer.metadata());
  const test::TemporaryFile file;
  nn::save_checkpoint(file.path(), nn::checkpoint_of(model, adam, 0, strings));

  const nn::LanguageModel loaded = nn::load_language_model(file.path());
  EXPECT_EQ(loaded.model.config().dropout, 0.25);
  EXPECT_EQ(loaded.model.config().layer_norm_epsilon, 1e-5);
  const std::vector<Index> prompt = loaded.tokenizer->encode("the ");
  nn::train(model, false);
  const Tensor ids = from_vector(prompt, {1, 4});
  EXPECT_EQ(values(loaded.model(ids)), values(model(ids)));  // without dropout
  EXPECT_EQ(loaded.tokenizer->decode(prompt), "the ");

  const auto refused = [&](const std::string& key, const char* value) {
    auto bad = strings;
    if (value)
      bad[key] = value;
    else
      bad.erase(key);
    nn::save_checkpoint(file.path(), nn::checkpoint_of(model, adam, 0, bad));
    return message_of<IoError>([&] { nn::load_language_model(file.path()); });
  };
  EXPECT_NE(refused("gpt.n_embd", nullptr).find("gpt.n_embd"), std::string::npos);
  EXPECT_NE(refused("gpt.n_embd", "8x").find("no number"), std::string::npos);
  EXPECT_NE(refused("gpt.n_embd", "800000000").find("wte"), std::string::npos);
  EXPECT_NE(refused("gpt.n_layer", "99999999999").find("layers"), std::string::npos);
  EXPECT_NE(refused("tokenizer.kind", nullptr).find("tokenizer.kind"), std::string::npos);
  EXPECT_NE(refused("tokenizer.characters", "ab").find("a tokenizer of 2 tokens"), std::string::npos);
}

TEST(LanguageModel, WritesText) {
  const std::string text = "A hacker is a person who enjoys exploring the details of programmable systems.";
  const nn::CharTokenizer tokenizer(text);
  const nn::GPT small({.vocab_size = tokenizer.vocab_size(), .block_size = 8, .n_layer = 1, .n_head = 1, .n_embd = 4});
  const nn::AdamW adam(nn::named_parameters(small));
  auto strings = nn::config_strings(small.config());
  strings.merge(tokenizer.metadata());
  const test::TemporaryFile file;
  nn::save_checkpoint(file.path(), nn::checkpoint_of(small, adam, 0, strings));

  const std::string path = file.path();
  const nn::LanguageModel lm = nn::load_language_model(path);
  const std::vector<Index> prompt = lm.tokenizer->encode("A hacker is");
  const Tensor ids = nn::generate(lm.model, from_vector(prompt, {static_cast<Index>(prompt.size())}), {.max_new_tokens = 100, .seed = 1});
  const std::string written = lm.tokenizer->decode(ids.to_vector<Index>());
  EXPECT_EQ(written.size(), 111u);
  EXPECT_TRUE(written.starts_with("A hacker is"));
}

TEST(LanguageModel, OfAPublishedFolderHasTheTokenizerBeside) {
  const Folder folder;
  EXPECT_NE(message_of<IoError>([&] { nn::load_language_model(folder.path()); }).find("vocab.json"), std::string::npos);
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy_file(golden / ".." / "bpe" / name, folder.path() / name);
  const std::string text = message_of<IoError>([&] { nn::load_language_model(folder.path()); });
  EXPECT_NE(text.find("for a model of 41"), std::string::npos) << text;
}

}  // namespace
}  // namespace heed
