#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <stdexcept>

#include "pictures.h"
#include "progress.h"

using namespace heed;

CharText::CharText(const std::string& bytes) {
  const std::set<char> distinct(bytes.begin(), bytes.end());
  alphabet.assign(distinct.begin(), distinct.end());
  const std::size_t cut = bytes.size() / 10 * 9;
  for (std::size_t i = 0; i < bytes.size(); ++i) (i < cut ? train : held_out).push_back(static_cast<Index>(alphabet.find(bytes[i])));
}

CharModel::CharModel(Index alphabet, Index context, Index d_model)
    : token_embedding(alphabet, d_model),
      position_embedding(context, d_model),
      norm(d_model),
      attention(d_model, d_model),
      hidden(2 * d_model, 4 * d_model),
      read_out(4 * d_model, alphabet),
      context_(context) {}

Tensor CharModel::embedded(const Tensor& ids) const {
  return token_embedding(ids) + position_embedding(arange(0, static_cast<double>(ids.size(-1)), 1, i64));
}

Tensor CharModel::weights(const Tensor& ids) const { return attention(norm(embedded(ids)), Mask::causal()).weights; }

Tensor CharModel::operator()(const Tensor& ids) const {
  const Tensor x = embedded(ids);
  const Tensor attended = attention(norm(x), {.mask = Mask::causal(), .need_weights = false}).output;
  return read_out(gelu(hidden(cat({x, attended}, -1))));
}

namespace {

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad() || !in.is_open()) throw std::runtime_error(fmt::format("--text: cannot read {}", path));
  return bytes;
}

struct Batch {
  Tensor ids, targets;  // (B, T), (B * T)
};
Batch windows(const std::vector<Index>& text, const std::vector<std::size_t>& starts, Index T) {
  std::vector<Index> ids, targets;
  for (std::size_t s : starts) {
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(s);
    ids.insert(ids.end(), begin, begin + T);
    targets.insert(targets.end(), begin + 1, begin + T + 1);
  }
  const Index B = static_cast<Index>(starts.size());
  return {from_vector(ids, {B, T}), from_vector(targets, {B * T})};
}

Tensor loss_of(const CharModel& model, const Batch& batch) {
  const Tensor logits = model(batch.ids);
  return cross_entropy(reshape(logits, {-1, logits.size(-1)}), batch.targets);
}

/// Over the whole held-out part. Windows overlap by half, and only the second half of a window counts (in the first window all of it), so that every
/// character but the first is predicted once, from at least half a context where there is one.
double held_out_bits(const CharModel& model, const std::vector<Index>& text) {
  const NoGrad off;
  const Index T = model.context(), hop = std::max<Index>(T / 2, 1);
  double nats = 0;
  Index counted = 0;
  for (Index start = 0; counted + 1 < static_cast<Index>(text.size()); start += hop) {
    const Index length = std::min(T, static_cast<Index>(text.size()) - 1 - start), fresh = start + length - counted;
    const Batch batch = windows(text, {static_cast<std::size_t>(start)}, length);
    const Tensor logits = reshape(model(batch.ids), {length, -1});
    nats += cross_entropy(slice(logits, 0, length - fresh, length), slice(batch.targets, 0, length - fresh, length), {.reduction = Reduction::sum})
                .item<double>();
    counted += fresh;
  }
  return nats / static_cast<double>(counted) / std::log(2.0);
}

std::string sample(const CharModel& model, const CharText& text, std::size_t length, std::mt19937_64& random) {
  const NoGrad off;
  std::vector<Index> ids(text.train.begin(), text.train.begin() + model.context());
  std::string out;
  while (out.size() < length) {
    const std::vector<Index> recent(ids.end() - model.context(), ids.end());
    const Tensor logits = model(from_vector(recent, {1, model.context()}));
    const std::vector<double> p = softmax(logits[0][-1] / 0.7, -1).to_vector<double>();
    ids.push_back(std::discrete_distribution<Index>(p.begin(), p.end())(random));
    out += text.alphabet[static_cast<std::size_t>(ids.back())];
  }
  return out;
}

/// What the beginning of the held-out part attends to.
std::string attention_picture(const CharModel& model, const CharText& text) {
  const NoGrad off;
  const Index T = std::min<Index>(model.context(), 40);
  std::vector<std::string> characters;
  for (Index i = 0; i < T; ++i) characters.emplace_back(1, text.alphabet[static_cast<std::size_t>(text.held_out[static_cast<std::size_t>(i)])]);
  return nn::svg_heat_map(
      model.weights(windows(text.held_out, {0}, T).ids)[0],
      {.title = "Attention after training, on held-out text", .queries = characters, .keys = characters, .allowed = tril(ones({T, T})).to(boolean)});
}

}  // namespace

int run_text(const Options& options) {
  const Index T = options.length.value_or(64), C = options.d_model.value_or(64), B = options.batch.value_or(32), steps = options.steps.value_or(500);
  if (options.d_head && *options.d_head != C) {
    fmt::print(stderr, "--d-head: the text model's head is as wide as the model: leave it out or give --d-model {}\n", *options.d_head);
    return 2;
  }
  const CharText text(read_all(options.text));
  if (static_cast<Index>(text.held_out.size()) < T + 1 || static_cast<Index>(text.train.size()) < T + 1)
    throw std::runtime_error(fmt::format("--text: {} is too short: its tenth must hold more than --length {} characters", options.text, T));

  std::mt19937_64 random(options.seed);
  CharModel model(static_cast<Index>(text.alphabet.size()), T, C);
  if (!options.load.empty()) nn::load(model, options.load);
  const NamedTensors named = nn::named_parameters(model);
  const std::vector<Tensor> params = nn::parameters(model);
  const auto data = nn::TokenDataset::from_parts(text.train, text.held_out);
  const auto alphabet = static_cast<Index>(text.alphabet.size());
  const double unigram = nn::unigram_bits(data, alphabet), bigram = nn::bigram_bits(data, alphabet);
  if (!options.quiet) {
    fmt::print("{}: {} characters, {} distinct; the last tenth is held out.\n", options.text, text.train.size() + text.held_out.size(),
               text.alphabet.size());
    fmt::print("One causal attention head, context {}, d_model {}: {} parameters\n\n", T, C, nn::num_parameters(model));
  }
  double seconds = 0;
  {
    Optimizer optimizer = make_optimizer(options.optimizer, named, options.lr.value_or(options.optimizer == "sgd" ? 0.3 : 3e-3));
    Progress progress(steps, B * T, options.quiet, options.csv, "bits/char");
    std::uniform_int_distribution<std::size_t> start(0, text.train.size() - static_cast<std::size_t>(T) - 1);
    for (Index step = 1; step <= steps; ++step) {
      std::vector<std::size_t> starts;
      for (Index b = 0; b < B; ++b) starts.push_back(start(random));
      const Tensor loss = loss_of(model, windows(text.train, starts, T));
      train_step(optimizer, params, loss);
      progress.step(step, loss.item<double>(), loss.item<double>() / std::log(2.0));
    }
    seconds = progress.seconds();
    if (!options.pictures.empty())
      write_picture(options.pictures, "loss.svg",
                    draw_curve("Loss on characters", "bits per character", {"attention, training batches", progress.scores()},
                               {{"pairs of characters, held out", bigram}, {"single characters, held out", unigram}}));
  }
  if (!options.save.empty()) nn::save(model, options.save);

  const double bits = held_out_bits(model, text.held_out);
  fmt::print("\nBits per character on the held-out tenth: attention {:.3f}, bigram {:.3f}, unigram {:.3f} ({:.0f} s of training)\n", bits, bigram,
             unigram, seconds);
  if (!options.pictures.empty()) {
    write_picture(options.pictures, "attention_after.svg", attention_picture(model, text));
    if (!options.quiet) fmt::print("\nPictures: loss.svg and attention_after.svg in {}\n", options.pictures);
  }
  if (!options.quiet) fmt::print("\nA sample:\n{}\n", sample(model, text, 300, random));
  return 0;
}
