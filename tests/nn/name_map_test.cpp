#include "support.h"

// Names of other programs: what a rule does to a tensor, both ways, and PyTorch's attention in a layer with other members.

namespace heed {
namespace {

using nn::NameChange;
using nn::NameMap;
using nn::translate;
using nn::translate_back;
using test::message_of;
using test::values;
using State = std::map<std::string, Tensor>;

std::vector<std::string> names(const State& state) {
  std::vector<std::string> out;
  for (const auto& [name, t] : state) out.push_back(name);
  return out;
}

const NameMap rules{{{"layers.*.norm.bias", {"h.*.ln.bias"}},
                     {"layers.*.proj", {"h.*.w"}, NameChange::transpose},
                     {"layers.*.qkv", {"h.*.q", "h.*.k", "h.*.v"}, NameChange::split_rows},
                     {"layers.*.mask", {}, NameChange::ignore}},
                    "model."};

TEST(NameMap, RenamesTransposesSplitsAndIgnores) {
  const State theirs{{"model.layers.10.norm.bias", ones({2})},
                     {"layers.3.proj", reshape(arange(0, 6), {2, 3})},
                     {"layers.3.qkv", reshape(arange(0, 12), {6, 2})},
                     {"model.layers.3.mask", ones({1})},
                     {"layers.3.other", ones({1})}};
  const State ours = translate(theirs, rules);
  EXPECT_EQ(names(ours), (std::vector<std::string>{"h.10.ln.bias", "h.3.k", "h.3.q", "h.3.v", "h.3.w", "layers.3.other"}));
  EXPECT_EQ(values(ours.at("h.3.w")), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values(ours.at("h.3.k")), (std::vector<double>{4, 5, 6, 7}));
  const State back = translate_back(ours, rules);
  EXPECT_EQ(names(back), (std::vector<std::string>{"layers.10.norm.bias", "layers.3.other", "layers.3.proj", "layers.3.qkv"}));
  EXPECT_EQ(values(back.at("layers.3.qkv")), values(theirs.at("layers.3.qkv")));
  EXPECT_EQ(values(back.at("layers.3.proj")), values(theirs.at("layers.3.proj")));
}

TEST(NameMap, AStarIsOnePart) {
  for (const char* name :
       {"layers.norm.bias", "layers.1.2.norm.bias", "layers..norm.bias", "xlayers.1.norm.bias", "layers.1.norm.bias.x", "layers.1.norm"})
    EXPECT_EQ(names(translate({{name, ones({1})}}, rules)), std::vector<std::string>{name});
}

TEST(NameMap, RefusesWhatDoesNotFit) {
  const auto refused = [&](const State& theirs) { return message_of<Error>([&] { translate(theirs, rules); }); };
  EXPECT_NE(refused({{"layers.1.norm.bias", ones({1})}, {"model.layers.1.norm.bias", ones({1})}}).find("h.1.ln.bias"), std::string::npos);
  EXPECT_NE(refused({{"layers.1.proj", ones({3})}}).find("not a matrix"), std::string::npos);
  EXPECT_NE(refused({{"layers.1.qkv", ones({4, 2})}}).find("3 parts"), std::string::npos);
  EXPECT_NE(refused({{"layers.1.qkv", ones({})}}), "");
  EXPECT_NE(refused({{"layers.1.qkv", Tensor()}}).find("undefined"), std::string::npos);
  EXPECT_THROW(translate({{"a", ones({1})}}, {{{"a", {"b", "c"}}}}), Error);
  EXPECT_THROW(translate({{"a", ones({1})}}, {{{"a", {"b.*"}}}}), Error);
  for (const char* part : {"h.1.q", "h.1.v"}) EXPECT_THROW(translate_back({{part, ones({1, 2})}}, rules), Error) << part;
}

/// What somebody writes who has not seen PyTorch's layer.
struct Linears {
  nn::Linear q{16, 16}, k{16, 16}, v{16, 16}, out{16, 16};
  Tensor operator()(const Tensor& x, Index heads) const {
    const auto split = [&](const Tensor& t) { return transpose(reshape(t, {t.size(0), t.size(1), heads, -1}), 1, 2); };
    const Tensor joined = scaled_dot_product_attention(split(q(x)), split(k(x)), split(v(x)), {.mask = Mask::causal()}).output;
    return out(flatten(transpose(joined, 1, 2), -2));
  }
  void visit(nn::Visitor& visitor) { visitor("q", q), visitor("k", k), visitor("v", v), visitor("out", out); }
};

TEST(NameMap, BringsPyTorchsAttention) {
  const test::Golden golden("mha_causal");
  State theirs;
  for (const char* name : {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"})
    theirs[name] = golden.get(std::string("param.") + name);
  const auto heads = static_cast<Index>(golden.number("num_heads"));

  nn::MultiHeadAttention same(16, heads);
  nn::to(same, f64);
  nn::load_state_dict(same, translate(theirs, nn::torch_attention_names()));
  EXPECT_TRUE(test::near(same(golden.get("x"), Mask::causal()).output, golden.get("out"), 1e-9));

  Linears split;
  nn::to(split, f64);
  nn::load_state_dict(split, translate(theirs, nn::torch_attention_names_of_linears()));
  EXPECT_TRUE(test::near(split(golden.get("x"), heads), golden.get("out"), 1e-9));
  const State back = translate_back(nn::state_dict(split), nn::torch_attention_names_of_linears());
  EXPECT_EQ(names(back), names(theirs));
  for (const auto& [name, t] : theirs) EXPECT_EQ(values(back.at(name)), values(t)) << name;

  theirs["bias_k"] = zeros({1, 1, 16}, f64);  // PyTorch's option that heed has not
  const std::string text = message_of<Error>([&] { nn::load_state_dict(same, translate(theirs, nn::torch_attention_names())); });
  EXPECT_NE(text.find("unexpected  bias_k"), std::string::npos) << text;
}

}  // namespace
}  // namespace heed
