#include "training.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "progress.h"
#include "text.h"

using namespace heed;
using Clock = std::chrono::steady_clock;

namespace {

constexpr Index looks_in_a_run = 20, look = 64;  // windows of the held-out part

volatile std::sig_atomic_t stopped_by = 0;

/// The first signal asks for a stop after the step; a second one ends the process as usual.
void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { stopped_by = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct Run {
  Run(const Recipe& recipe_, std::unique_ptr<nn::Tokenizer> tokenizer_, const Text& text)
      : recipe(recipe_),
        tokenizer(std::move(tokenizer_)),
        data(nn::TokenDataset::from_parts(tokenizer->encode(text.train()), tokenizer->encode(text.held_out()), recipe.seed)),
        model({.vocab_size = tokenizer->vocab_size(),
               .block_size = recipe.context,
               .n_layer = recipe.layers,
               .n_head = recipe.heads,
               .n_embd = recipe.d_model,
               .dropout = recipe.dropout}),
        params(nn::parameters(model)),
        optimizer(nn::decay_groups(model, nn::AdamWOptions{.lr = recipe.lr, .betas = {0.9, 0.95}, .weight_decay = recipe.weight_decay})),
        train_characters(static_cast<double>(detail::count_characters(text.train()))),
        held_out_characters(static_cast<double>(detail::count_characters(text.held_out()))) {}

  Tensor loss_of(const Tensor& x, const Tensor& y, Reduction reduction) const {
    const Tensor logits = model(x);
    return cross_entropy(reshape(logits, {-1, logits.size(-1)}), reshape(y, {-1}), {.reduction = reduction});
  }

  /// One step of AdamW over the batch of that number, in parts whose gradients add up.
  StepReport train(Index step) {
    const auto start = Clock::now();
    const nn::TokenBatch batch = data.batch(step, recipe.batch, recipe.context);
    optimizer.zero_grad();
    double loss = 0;
    const std::vector<Tensor> xs = chunk(batch.x, recipe.accumulate, 0), ys = chunk(batch.y, recipe.accumulate, 0);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      const Tensor part = loss_of(xs[i], ys[i], Reduction::mean) * (static_cast<double>(xs[i].size(0)) / static_cast<double>(recipe.batch));
      part.backward();
      loss += part.item<double>();
    }
    const nn::WarmupCosine rate{.peak = recipe.lr, .warmup_steps = recipe.warmup, .total_steps = recipe.steps, .floor = recipe.lr / 10};
    const double lr = rate(step), norm = nn::clip_grad_norm(params, recipe.clip);
    if (!std::isfinite(loss) || !std::isfinite(norm))
      throw std::runtime_error(fmt::format("step {}: loss {}, norm of the gradients {}: try a smaller --lr", step + 1, loss, norm));
    optimizer.set_lr(lr);
    optimizer.step();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return {.step = step + 1,
            .loss = loss,
            .bits = loss / std::log(2.0) * static_cast<double>(data.train_size()) / train_characters,
            .norm = norm,
            .lr = lr,
            .ms = 1e3 * seconds,
            .tokens_per_second = static_cast<double>(recipe.batch * recipe.context) / seconds};
  }

  /// Bits a character on the held-out part: on all of it, or on so many windows, evenly spread.
  double held_out_bits(std::optional<Index> at_most = {}) {
    const NoGrad off;
    nn::train(model, false);
    const Index all = data.held_out_windows(recipe.context), n = std::min(all, at_most.value_or(all));
    double nats = 0, tokens = 0;
    for (Index first = 0; first < n; first += recipe.batch) {
      std::vector<Index> windows;
      for (Index w = first; w < std::min(n, first + recipe.batch); ++w) windows.push_back(w * all / n);
      const auto [x, y] = data.held_out(windows, recipe.context);
      nats += loss_of(x, y, Reduction::sum).item<double>();
      tokens += sum(ne(y, nn::TokenDataset::ignored).to(f64)).item<double>();
    }
    nn::train(model, true);
    return nats / tokens / std::log(2.0) * static_cast<double>(data.held_out_size()) / held_out_characters;
  }

  /// Random numbers of its own, so that a look at the model changes nothing in the run.
  std::string sample(const std::string& prompt, Index tokens) const {
    const std::vector<Index> ids = tokenizer->encode(prompt);
    const Tensor all = nn::generate(model, from_vector(ids, {static_cast<Index>(ids.size())}),
                                    {.max_new_tokens = tokens, .temperature = 0.8, .top_p = 0.95, .seed = recipe.seed});
    return tokenizer->decode(all.to_vector<Index>());
  }

  void save(const std::string& path, Index step, const Text& text) const {
    auto strings = nn::config_strings(model.config());
    strings.merge(tokenizer->metadata());
    strings.merge(recipe_strings(recipe));
    strings["train.text"] = text.fingerprint();
    nn::save_checkpoint(path, nn::checkpoint_of(model, optimizer, step, std::move(strings)));
  }

  Recipe recipe;
  std::unique_ptr<nn::Tokenizer> tokenizer;
  nn::TokenDataset data;
  nn::GPT model;
  std::vector<Tensor> params;
  nn::AdamW optimizer;
  double train_characters, held_out_characters;
};

/// Of the same model, tokenizer and text; says which run it was.
std::unique_ptr<Run> resumed(const nn::Checkpoint& checkpoint, const Options& options, const Text& text) {
  Recipe recipe = recipe_from(checkpoint.strings);
  if (options.recipe.steps > 0) recipe.steps = options.recipe.steps;
  const auto known = checkpoint.strings.find("train.text");
  if (known == checkpoint.strings.end() || known->second != text.fingerprint())
    throw std::runtime_error(fmt::format("--resume: {} was trained on another text than {}", options.resume, options.text));
  auto run = std::make_unique<Run>(recipe, nn::tokenizer_from(checkpoint.strings), text);
  nn::restore(checkpoint, run->model, run->optimizer);
  return run;
}

void describe(const Run& run, const Baselines& baselines, const std::string& path) {
  const Recipe& r = run.recipe;
  fmt::print("{}: {:.0f} characters to learn from, {:.0f} held out at the end\n", path, run.train_characters, run.held_out_characters);
  fmt::print("{}: {} tokens, {:.2f} characters each\n", r.tokenizer, run.tokenizer->vocab_size(),
             run.train_characters / static_cast<double>(run.data.train_size()));
  fmt::print("GPT: {} layers, {} heads, d_model {}, context {}: {} parameters\n", r.layers, r.heads, r.d_model, r.context,
             nn::num_parameters(run.model));
  fmt::print("Bits per character of the held-out part: unigrams {:.3f}, bigrams {:.3f}, xz -9 {}\n\n", baselines.unigram, baselines.bigram,
             baselines.xz ? fmt::format("{:.3f}", *baselines.xz) : "not installed");
}

}  // namespace

int run(const Options& options) {
  // Better now than after the first hundred steps.
  const std::filesystem::path folder = std::filesystem::absolute(options.out).parent_path();
  if (::access(folder.c_str(), W_OK) != 0) throw std::runtime_error(fmt::format("--out: cannot write into {}", folder.string()));
  const Text text(options.text);
  manual_seed(options.recipe.seed);
  std::unique_ptr<Run> run;
  Index done = 0;
  if (options.resume.empty()) {
    run = std::make_unique<Run>(options.recipe, make_tokenizer(options.recipe.tokenizer, text, options.recipe.vocab_size), text);
  } else {
    const nn::Checkpoint checkpoint = nn::load_checkpoint(options.resume);
    run = resumed(checkpoint, options, text);
    done = checkpoint.step;
  }
  const Recipe& recipe = run->recipe;
  if (done > recipe.steps) throw std::runtime_error(fmt::format("--steps: {} were made already, more than {}", done, recipe.steps));
  run->data.batch(0, 1, recipe.context);  // throws when the text is too short
  if (run->data.held_out_size() == 0) throw std::runtime_error("the text is too short: nothing is held out");
  const Baselines baselines = baselines_of(text);
  if (!options.quiet) describe(*run, baselines, options.text);
  if (options.summary) fmt::print("{}\n", nn::summary(run->model));
  if (!options.dot.empty()) {
    const RngState before = rng_state();
    const nn::TokenBatch batch = run->data.batch(0, recipe.batch, recipe.context);
    std::ofstream out(options.dot);
    out << to_dot(run->loss_of(batch.x, batch.y, Reduction::mean).named("loss"), nn::named_parameters(run->model));
    if (!out.flush()) throw std::runtime_error(fmt::format("--dot: cannot write {}", options.dot));
    set_rng_state(before);
  }
  if (done > 0 && !options.quiet) fmt::print("Going on after step {}\n", done);

  stop_on_signals();
  const auto start = Clock::now();
  const auto seconds = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::string prompt = options.sample_prompt;
  if (prompt.empty()) prompt = text.all().find('\n') < text.all().size() ? "\n" : std::string(text.held_out().substr(0, 1));
  Progress progress(options.minutes > 0 ? 0 : recipe.steps, done, options.quiet, options.csv);
  Index step = done;
  if (step == 0) progress.held_out(0, run->held_out_bits(look));
  const double seconds_of_a_look = seconds();
  double seconds_before = 0;
  while (step < recipe.steps && stopped_by == 0) {
    progress.step(run->train(step++));
    if (options.minutes > 0 && step == probe_steps / 4) seconds_before = seconds();
    if (options.minutes > 0 && step == probe_steps) {
      // The rate in the warm-up does not depend on how many steps there will be: it can be decided now. A little is left for samples and saving.
      const double a_step = (seconds() - seconds_before) / (probe_steps - probe_steps / 4);
      const double looks = looks_in_a_run + static_cast<double>(run->data.held_out_windows(recipe.context)) / static_cast<double>(look);
      const double left = 0.97 * 60 * options.minutes - seconds() - looks * seconds_of_a_look;
      run->recipe.steps = step + std::max(Index{1}, static_cast<Index>(left / a_step));
      progress.set_steps(recipe.steps);
      progress.end_line();
      fmt::print("Going for {} steps, {:.0f} ms each\n", recipe.steps, 1e3 * a_step);
      std::fflush(stdout);
    }
    const Index every = options.eval_every > 0 ? options.eval_every : std::max<Index>(recipe.steps / looks_in_a_run, 1);
    if (step % every != 0 || step == recipe.steps || stopped_by != 0) continue;
    run->save(options.out, step, text);
    const double bits = run->held_out_bits(look);
    progress.held_out(step, bits);
    if (options.quiet) continue;
    progress.end_line();
    fmt::print("        held out: {:.3f} bits/char\n", bits);
    if (options.sample_length > 0) fmt::print("        {}\n", run->sample(prompt, options.sample_length / 4));
    std::fflush(stdout);
  }
  progress.end_line();
  run->save(options.out, step, text);
  if (stopped_by != 0) {
    fmt::print("Stopped after step {} of {}. Saved in {}; go on with\n  train_text {} --resume {} --out {}\n", step, recipe.steps, options.out,
               options.text, options.out, options.out);
    if (!options.svg.empty()) progress.write_svg(options.svg, std::filesystem::path(options.text).filename().string(), baselines);
    return 128 + stopped_by;
  }
  const double bits = run->held_out_bits();
  progress.held_out(step, bits);
  if (!options.svg.empty()) progress.write_svg(options.svg, std::filesystem::path(options.text).filename().string(), baselines);
  if (!options.quiet && options.sample_length > 0) fmt::print("\nA sample:\n{}\n\n", run->sample(prompt, options.sample_length));
  fmt::print("Bits per character of the held-out part: GPT {:.3f}, unigrams {:.3f}, bigrams {:.3f}, xz -9 {} ({:.0f} s). Saved in {}\n", bits,
             baselines.unigram, baselines.bigram, baselines.xz ? fmt::format("{:.3f}", *baselines.xz) : "not installed", seconds(), options.out);
  return 0;
}
