#include "recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "pictures.h"
#include "progress.h"

using namespace heed;

RecallBatch make_recall_batch(Index batch, Index length, Index n_keys, Index n_values, std::mt19937_64& random) {
  const auto below = [&](Index n) { return std::uniform_int_distribution<Index>(0, n - 1)(random); };
  std::vector<Index> keys, values, answers, deck(static_cast<std::size_t>(n_keys));
  Index asked_of_first = 0;
  for (Index b = 0; b < batch; ++b) {
    std::iota(deck.begin(), deck.end(), 0);
    std::shuffle(deck.begin(), deck.end(), random);
    keys.insert(keys.end(), deck.begin(), deck.begin() + (length - 1));
    const Index asked = below(length - 1);
    keys.push_back(deck[static_cast<std::size_t>(asked)]);
    for (Index i = 0; i < length - 1; ++i) {
      values.push_back(below(n_values));
      if (i == asked) answers.push_back(values.back());
    }
    if (b == 0) asked_of_first = asked;
  }
  return {from_vector(keys, {batch, length}), from_vector(values, {batch, length - 1}), from_vector(answers, {batch}), asked_of_first};
}

RecallModel::RecallModel(Index n_keys, Index n_values, Index d_model, Index d_head)
    : key_embedding(n_keys, d_model), value_embedding(n_values, d_model), attention(d_model, d_head), read_out(d_head, n_values) {}

RecallModel::Result RecallModel::operator()(const RecallBatch& batch) const {
  const Tensor keys = key_embedding(batch.keys), values = value_embedding(batch.values);
  const Index B = keys.size(0), C = keys.size(2);
  const Tensor x = keys + cat({values, zeros({B, 1, C}, keys.dtype())}, 1);
  auto [output, weights] = attention(x, Mask::causal());
  return {read_out(select(output, 1, -1)), weights};
}

namespace {

double accuracy(const Tensor& logits, const Tensor& answers) { return mean(eq(argmax(logits, -1), answers).to(f64)).item<double>(); }

/// The layer's own class at a size that a whole Jacobian is quickly taken at, in f64.
bool check_gradients(bool quiet) {
  nn::SingleHeadSelfAttention small(6, 4);
  nn::to(small, f64);
  const Tensor x = randn({5, 6}, f64);
  const GradcheckReport report = gradcheck([&] { return small(x, Mask::causal()).output; }, nn::named_parameters(small));
  if (!quiet) fmt::print("Gradients of a layer of the same class, d_model 6, d_head 4, T 5, against differences in f64\n{}\n\n", report.message);
  return report.ok;
}

/// What the model attends to in the example: in the terminal, and as a picture where a folder is given.
std::string show(const RecallModel& model, const RecallBatch& example, const Options& options, const char* when) {
  const NoGrad off;
  const Tensor weights = model(example).weights[0];
  const Index T = weights.size(0);
  const std::vector<Index> keys = example.keys[0].to_vector<Index>(), values = example.values[0].to_vector<Index>();
  nn::HeatMapOptions map;
  for (Index i = 0; i < T; ++i) {
    const auto at = static_cast<std::size_t>(i);
    map.queries.push_back(i + 1 < T ? fmt::format("key {} value {}", keys[at], values[at]) : fmt::format("key {}?", keys[at]));
    map.keys.push_back(fmt::format("{}", keys[at]));
  }
  map.allowed = tril(ones({T, T})).to(boolean);
  map.ink = nn::ink_for(stdout);
  if (!options.pictures.empty())
    write_picture(
        options.pictures, fmt::format("attention_{}.svg", when),
        nn::svg_heat_map(weights,
                         {.title = fmt::format("Attention {} training", when), .queries = map.queries, .keys = map.queries, .allowed = map.allowed}));
  return nn::heat_map(weights, map);
}

}  // namespace

int run_recall(const Options& options) {
  const Index steps = options.steps.value_or(300), B = options.batch.value_or(64), T = options.length.value_or(12);
  const Index C = options.d_model.value_or(64), D = options.d_head.value_or(32);
  if (T - 1 > options.keys) {
    fmt::print(stderr, "--length: {} positions hold {} pairs with distinct keys, but --keys is {}: at most {} are allowed\n", T, T - 1, options.keys,
               options.keys + 1);
    return 2;
  }
  std::mt19937_64 random(options.seed);
  RecallModel model(options.keys, options.values, C, D);
  if (!options.load.empty()) nn::load(model, options.load);
  const NamedTensors named = nn::named_parameters(model);
  const std::vector<Tensor> params = nn::parameters(model);
  const RecallBatch example = make_recall_batch(1, T, options.keys, options.values, random);

  if (!options.quiet) {
    fmt::print("Recall: {} pairs of a key and a value, then a key; the answer is the value beside it.\n", T - 1);
    fmt::print("One causal attention head, d_model {}, d_head {}:\n", C, D);
    for (const auto& [name, p] : named) fmt::print("  {:<26} ({}, {})\n", name, p.size(0), p.dim() > 1 ? p.size(1) : 1);
    fmt::print("  {} parameters\n\n", nn::num_parameters(model));
  }
  const bool gradients_right = check_gradients(options.quiet);
  const std::string before = show(model, example, options, "before");
  if (!options.quiet) fmt::print("Attention before training: rows attend to columns, labels are keys\n{}\n", before);

  {
    Optimizer optimizer = make_optimizer(options.optimizer, named, options.lr.value_or(options.optimizer == "sgd" ? 0.5 : 1e-2));
    Progress progress(steps, B * T, options.quiet, options.csv, "accuracy");
    for (Index step = 1; step <= steps; ++step) {
      const RecallBatch batch = make_recall_batch(B, T, options.keys, options.values, random);
      const Tensor logits = model(batch).logits, loss = cross_entropy(logits, batch.answers);
      train_step(optimizer, params, loss);
      progress.step(step, loss.item<double>(), accuracy(logits, batch.answers));
    }
    if (!options.pictures.empty())
      write_picture(options.pictures, "loss.svg",
                    draw_curve("Loss of recall", "cross entropy, nats", {"training batches", progress.losses()},
                               {{fmt::format("guessing one of {} values", options.values), std::log(static_cast<double>(options.values))}}));
  }
  if (!options.save.empty()) nn::save(model, options.save);

  const NoGrad off;
  const RecallBatch unseen = make_recall_batch(2000, T, options.keys, options.values, random);
  const double reached = accuracy(model(unseen).logits, unseen.answers);
  const bool learned = reached >= 0.99;
  const std::string after = show(model, example, options, "after");
  if (!options.quiet) {
    fmt::print("\nAttention after training: the last row asks for key {}, which stands at position {}\n{}\n", example.keys[0][-1].item<Index>(),
               example.asked_of_first, after);
    if (!options.pictures.empty()) fmt::print("Pictures: loss.svg, attention_before.svg and attention_after.svg in {}\n", options.pictures);
    fmt::print("Gradients: {}\n", gradients_right ? "right" : "WRONG");
  }
  fmt::print("Accuracy on 2000 sequences never seen: {:.2f} % ({})\n", 100 * reached, learned ? "at least 99 %: learned" : "below 99 %: NOT learned");
  return learned && gradients_right ? 0 : 1;
}
