// Checks the gradients of any layer that heed ships, at sizes from the command line.

#include <fmt/format.h>
#include <heed/heed.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>
#include <functional>
#include <map>

using namespace heed;

namespace {

struct Options {
  std::string layer = "attention", mode = "automatic", json;
  Index B = 2, T = 6, d_model = 8, d_head = 8, count = 0;
  std::uint64_t seed = 1;
  bool second_order = false, causal = false;
};

/// What is checked: parameters and input by name, and the outputs that they give.
struct Subject {
  NamedTensors inputs;
  std::function<Tensor()> outputs;
};

template <class Layer, class Forward>
Subject subject(Layer layer, const Tensor& x, Forward forward) {
  nn::to(layer, f64);
  NamedTensors inputs = nn::named_parameters(layer);
  if (x.dtype() == f64) inputs.emplace_back("x", x);
  return {inputs, [layer, x, forward] { return forward(layer, x); }};
}

using Maker = Subject (*)(const Options&);
const std::map<std::string, Maker> layers = {
    {"attention",
     [](const Options& o) {
       const Mask mask = o.causal ? Mask::causal() : Mask();
       return subject(nn::SingleHeadSelfAttention(o.d_model, o.d_head), randn({o.B, o.T, o.d_model}, f64),
                      [mask](const auto& layer, const Tensor& x) { return layer(x, mask).output; });
     }},
    {"linear",
     [](const Options& o) {
       return subject(nn::Linear(o.d_model, o.d_head), randn({o.B, o.T, o.d_model}, f64),
                      [](const auto& layer, const Tensor& x) { return layer(x); });
     }},
    {"layer_norm",
     [](const Options& o) {
       return subject(nn::LayerNorm(o.d_model), randn({o.B, o.T, o.d_model}, f64), [](const auto& layer, const Tensor& x) { return layer(x); });
     }},
    {"embedding",
     [](const Options& o) {
       return subject(nn::Embedding(o.d_model, o.d_head), randint(0, o.d_model, {o.B, o.T}),
                      [](const auto& layer, const Tensor& ids) { return layer(ids); });
     }},
    {"mlp",
     [](const Options& o) {
       const auto activation = [](const Tensor& t) { return gelu(t); };
       return subject(nn::Sequential(nn::Linear(o.d_model, 2 * o.d_model), activation, nn::Linear(2 * o.d_model, o.d_head)),
                      randn({o.B, o.T, o.d_model}, f64), [](const auto& layer, const Tensor& x) { return layer(x); });
     }},
};

GradcheckMode mode_of(const Options& o) {
  if (o.mode == "full") return GradcheckMode::full();
  if (o.mode == "directional") return o.count > 0 ? GradcheckMode::directional(o.count) : GradcheckMode::directional();
  if (o.mode == "sampled") return o.count > 0 ? GradcheckMode::sampled(o.count) : GradcheckMode::sampled();
  return GradcheckMode::automatic();
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, maker] : layers) all.push_back(name);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Holds the gradients of a layer, computed by backward in f64, against central differences. Exit status 0 only when all are right.");
  const auto size = CLI::Range(Index{1}, Index{65536});
  app.add_option("layer", o.layer, "which layer")->check(CLI::IsMember(names()))->capture_default_str();
  app.add_option("--batch", o.B, "sequences")->check(size)->capture_default_str();
  app.add_option("--length", o.T, "positions in a sequence")->check(size)->capture_default_str();
  app.add_option("--d-model", o.d_model, "size of an input (embedding: rows of the table)")->check(size)->capture_default_str();
  app.add_option("--d-head", o.d_head, "size of an output")->check(size)->capture_default_str();
  app.add_flag("--causal", o.causal, "attention: with a causal mask");
  app.add_option("--mode", o.mode, "automatic, full, directional or sampled")
      ->check(CLI::IsMember({"automatic", "full", "directional", "sampled"}))
      ->capture_default_str();
  app.add_option("--count", o.count, "directions or sampled elements of each input")->check(CLI::Range(Index{1}, Index{1000000}));
  app.add_flag("--second-order", o.second_order, "check the gradients' own gradients");
  app.add_option("--seed", o.seed, "of parameters, inputs and the check")->capture_default_str();
  app.add_option("--json", o.json, "also write the report to this file, - for standard output alone");
  CLI11_PARSE(app, argc, argv);

  try {
    manual_seed(o.seed);
    const Subject s = layers.at(o.layer)(o);
    const GradcheckOptions options{.mode = mode_of(o), .seed = o.seed};
    const GradcheckReport report = o.second_order ? gradgradcheck(s.outputs, s.inputs, options) : gradcheck(s.outputs, s.inputs, options);
    if (o.json != "-") fmt::print("{}\n", report.message);
    if (o.json == "-") {
      fmt::print("{}\n", report.to_json());
    } else if (!o.json.empty()) {
      std::ofstream out(o.json);
      if (!(out << report.to_json() << '\n' << std::flush)) throw std::runtime_error("--json: cannot write " + o.json);
    }
    return report.ok ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "gradcheck: {}\n", e.what());
    return 2;
  }
}
