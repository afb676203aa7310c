// Multi-head attention as a user writes it, twice: from single heads, and from scratch. Both are held against nn::MultiHeadAttention and against
// central differences; exits 0 only when all of it is right.
#include <heed/heed.h>

#include <cmath>
#include <iostream>

using namespace heed;

/// Heads that exist, side by side, and a projection.
struct FromHeads {
  FromHeads(Index d_model, Index count) : proj(d_model, d_model) {
    for (Index h = 0; h < count; ++h) heads.emplace_back(d_model, d_model / count);
  }
  Tensor operator()(const Tensor& x, const Mask& mask = {}) const {
    std::vector<Tensor> outputs;
    for (const auto& head : heads) outputs.push_back(head(x, mask).output);
    return proj(cat(outputs, -1));
  }
  void visit(nn::Visitor& v) { v("heads", heads), v("proj", proj); }
  std::vector<nn::SingleHeadSelfAttention> heads;
  nn::Linear proj;
};

/// Every step written out: no attention code of the library's, and no gradient code at all.
struct FromScratch {
  FromScratch(Index d_model, Index count) : qkv(d_model, 3 * d_model), proj(d_model, d_model), heads(count) {}
  Tensor operator()(const Tensor& x, const Mask& mask = {}) const {
    const Index B = x.size(0), T = x.size(1), d = x.size(2) / heads;
    const Tensor parts = permute(reshape(qkv(x), {B, T, 3, heads, d}), {2, 0, 3, 1, 4});  // (3, B, heads, T, d)
    const Tensor scores = matmul(parts[0], transpose(parts[1], -2, -1)) / std::sqrt(static_cast<double>(d));
    const Tensor weights = softmax(scores + mask.to_tensor(T, T, x.dtype()), -1);
    return proj(reshape(transpose(matmul(weights, parts[2]), 1, 2), {B, T, heads * d}));
  }
  void visit(nn::Visitor& v) { v("qkv", qkv), v("proj", proj); }
  nn::Linear qkv, proj;
  Index heads;
};

template <nn::Module M>
bool gradients_are_right(const char* name, const M& layer, const Tensor& x) {
  NamedTensors inputs = nn::named_parameters(layer);
  inputs.emplace_back("x", x);
  const GradcheckReport report = gradcheck([&] { return layer(x, Mask::causal()); }, inputs);
  std::cout << name << ": " << report.message << "\n\n";
  return report.ok;
}

int main() {
  manual_seed(1);
  const Index d_model = 8, heads = 2, d = d_model / heads;
  FromHeads from_heads(d_model, heads);
  FromScratch from_scratch(d_model, heads);
  nn::MultiHeadAttention reference(d_model, heads);
  nn::to(from_heads, f64), nn::to(from_scratch, f64), nn::to(reference, f64);

  // The same weights for all three: rows of in_proj are those of q, k and v, in each of them head by head.
  const Tensor in = from_scratch.qkv.weight.detach();
  auto state = nn::state_dict(from_scratch);
  state["qkv.bias"].fill_(0);  // single heads have none
  nn::load_state_dict(reference, {{"in_proj_weight", in},
                                  {"in_proj_bias", state["qkv.bias"]},
                                  {"out_proj.weight", state["proj.weight"]},
                                  {"out_proj.bias", state["proj.bias"]}});
  std::map<std::string, Tensor> parts = {{"proj.weight", state["proj.weight"]}, {"proj.bias", state["proj.bias"]}};
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < 3; ++i)
      parts["heads." + std::to_string(h) + ".W_" + "qkv"[i]] = transpose(slice(in, 0, i * d_model + h * d, i * d_model + (h + 1) * d), 0, 1);
  nn::load_state_dict(from_heads, parts);

  const Tensor x = randn({2, 5, d_model}, f64).requires_grad_(), expected = reference(x, Mask::causal()).output;
  const double gap = std::max(max(abs(from_heads(x, Mask::causal()) - expected)).item<double>(),
                              max(abs(from_scratch(x, Mask::causal()) - expected)).item<double>());
  std::cout << "largest difference to nn::MultiHeadAttention: " << gap << "\n\n";
  const bool heads_right = gradients_are_right("from heads", from_heads, x), scratch_right = gradients_are_right("from scratch", from_scratch, x);
  return heads_right && scratch_right && gap < 1e-12 ? 0 : 1;
}
