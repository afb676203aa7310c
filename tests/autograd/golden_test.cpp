#include <gtest/gtest.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/io/safetensors.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "close.h"

// Values and gradients computed with PyTorch: tests/golden/README.md says what the files hold.

namespace heed::test {
namespace {

const std::filesystem::path folder = HEED_SOURCE_DIR "/tests/golden";

/// One file in one dtype.
class Golden {
 public:
  Golden(const std::string& name, DType dtype) : dtype_(dtype) {
    const std::filesystem::path path = folder / (name + ".safetensors");
    metadata_ = safetensors_metadata(path);
    for (const auto& [key, value] : load_safetensors(path)) tensors_[key] = detail::is_float(value.dtype()) ? value.to(dtype).clone() : value;
  }

  bool has(const std::string& key) const { return tensors_.contains(key); }
  Tensor operator[](const std::string& key) const { return tensors_.at(key); }
  Tensor input(const std::string& key) const { return leaf(tensors_.at(key)); }
  std::string text(const std::string& key) const { return metadata_.at(key); }
  double number(const std::string& key) const { return std::stod(metadata_.at(key)); }
  bool says(const std::string& key) const { return metadata_.contains(key); }

  void expect(const std::string& key, const Tensor& actual) const {
    EXPECT_TRUE(close(actual, tensors_.at(key), dtype_ == f64 ? 1e-9 : 2e-5)) << key << " in " << dtype_;
  }

 private:
  DType dtype_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor> tensors_;
};

std::vector<std::string> files(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors" && entry.path().filename().string().starts_with(prefix))
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Calls `check(golden)` for each file that begins with `prefix`, in both dtypes.
template <class F>
void for_each_file(const std::string& prefix, std::size_t at_least, F check) {
  const std::vector<std::string> names = files(prefix);
  ASSERT_GE(names.size(), at_least) << "files are missing in " << folder;
  for (const std::string& name : names)
    for (DType dtype : {f64, f32}) {
      SCOPED_TRACE(name);
      check(Golden(name, dtype));
    }
}

Mask mask_of(const Golden& g, const Tensor& bias) {
  const std::string kind = g.text("mask");
  if (kind == "causal") return Mask::causal(static_cast<Index>(g.number("offset")));
  if (kind == "keep") return Mask::keep(g["keep"]);
  if (kind == "bias") return Mask::bias(bias);
  if (kind == "lengths") {
    std::vector<Index> lengths;
    std::istringstream list(g.text("lengths"));
    for (std::string n; std::getline(list, n, ',');) lengths.push_back(std::stol(n));
    return Mask::lengths(lengths);
  }
  EXPECT_EQ(kind, "none");
  return Mask::none();
}

void expect_attention(const Golden& g, Kernel kernel) {
  std::vector<Tensor> inputs{g.input("q"), g.input("k"), g.input("v")};
  std::vector<std::string> names{"dq", "dk", "dv"};
  if (g.has("bias")) inputs.push_back(g.input("bias")), names.push_back("dbias");
  AttentionOptions options{.mask = mask_of(g, g.has("bias") ? inputs[3] : Tensor()), .kernel = kernel};
  if (g.says("scale")) options.scale = g.number("scale");
  const auto [out, weights] = scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], options);
  g.expect("out", out);
  g.expect("weights", weights);
  std::vector<Tensor> outputs{out}, along{g["g"]};
  if (g.has("g_weights")) outputs.push_back(weights), along.push_back(g["g_weights"]);
  const std::vector<Tensor> d = grad(outputs, inputs, along);
  for (std::size_t i = 0; i < d.size(); ++i) g.expect(names[i], d[i]);

  // Without the weights, where nothing needs them.
  if (g.has("g_weights")) return;
  options.need_weights = false;
  const Tensor alone = scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], options).output;
  g.expect("out", alone);
  const std::vector<Tensor> e = grad({alone}, inputs, along);
  for (std::size_t i = 0; i < e.size(); ++i) g.expect(names[i], e[i]);
}

TEST(Golden, composed_attention) {
  for_each_file("sdpa_", 10, [](const Golden& g) { expect_attention(g, Kernel::composed); });
}
TEST(Golden, tiled_attention) {
  for_each_file("sdpa_", 10, [](const Golden& g) { expect_attention(g, Kernel::tiled); });
}

TEST(Golden, layer_norm) {
  for_each_file("layer_norm", 1, [](const Golden& g) {
    const Tensor x = g.input("x"), weight = g.input("weight"), bias = g.input("bias");
    const Tensor y = layer_norm(x, weight.shape(), weight, bias, g.number("eps"));
    g.expect("out", y);
    const std::vector<Tensor> d = grad({y}, {x, weight, bias}, {g["g"]});
    g.expect("dx", d[0]);
    g.expect("dweight", d[1]);
    g.expect("dbias", d[2]);
  });
}

/// Files with x, out, g and dx.
template <class F>
void expect_unary(const std::string& prefix, std::size_t at_least, F f) {
  for_each_file(prefix, at_least, [f](const Golden& g) {
    const Tensor x = g.input("x"), y = f(g, x);
    g.expect("out", y);
    g.expect("dx", grad({y}, {x}, {g["g"]})[0]);
  });
}

TEST(Golden, gelu) {
  expect_unary("gelu_", 2, [](const Golden& g, const Tensor& x) { return gelu(x, g.text("approximate") == "tanh" ? Gelu::tanh : Gelu::erf); });
}
TEST(Golden, softmax) {
  expect_unary("softmax_", 3, [](const Golden& g, const Tensor& x) { return softmax(x, static_cast<Index>(g.number("dim"))); });
}
TEST(Golden, log_softmax) {
  expect_unary("log_softmax_", 3, [](const Golden& g, const Tensor& x) { return log_softmax(x, static_cast<Index>(g.number("dim"))); });
}

TEST(Golden, cross_entropy) {
  for_each_file("cross_entropy_", 4, [](const Golden& g) {
    const Tensor logits = g.input("logits");
    const Tensor loss = cross_entropy(logits, g["targets"],
                                      {.reduction = g.text("reduction") == "sum" ? Reduction::sum : Reduction::mean,
                                       .ignore_index = static_cast<Index>(g.number("ignore_index")),
                                       .label_smoothing = g.number("label_smoothing")});
    g.expect("loss", loss);
    g.expect("dlogits", grad({loss}, {logits})[0]);
  });
}

TEST(Golden, embedding) {
  for_each_file("embedding", 1, [](const Golden& g) {
    const Tensor weight = g.input("weight"), y = embedding(g["ids"], weight);
    g.expect("out", y);
    g.expect("dweight", grad({y}, {weight}, {g["g"]})[0]);
  });
}

}  // namespace
}  // namespace heed::test
