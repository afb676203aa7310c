// Trains a GPT on a text file: tokens, model, schedule, checkpoints, curve. What it writes, examples/generate reads.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>

#include "training.h"

int main(int argc, char** argv) {
  Options options;
  Recipe& recipe = options.recipe;
  CLI::App app("Trains a small GPT on a text. Ctrl-C saves and stops; --resume goes on, bit for bit as if it had not been stopped.");
  const auto count = CLI::Range(heed::Index{1}, heed::Index{1} << 30);
  app.add_option("text", options.text, "the text file: the last tenth is held out")->required()->check(CLI::ExistingFile);
  app.add_option("--out", options.out, "the checkpoint: model, tokenizer and the state of the run")->capture_default_str();
  app.add_option("--csv", options.csv, "write every step to this file");
  app.add_option("--svg", options.svg, "draw the curve of the loss into this file");
  app.add_option("--eval-every", options.eval_every, "steps between looks at the held-out part, each with a sample and a checkpoint (steps / 20)")
      ->check(count);
  app.add_option("--sample-length", options.sample_length, "tokens of the sample at the end, a quarter of it on the way; 0: none")
      ->check(CLI::Range(heed::Index{0}, heed::Index{1} << 20))
      ->capture_default_str();
  app.add_option("--sample-prompt", options.sample_prompt, "what samples begin with (a new line)");
  app.add_option("--dot", options.dot, "write the graph of a step to this file, for Graphviz");
  app.add_option("--threads", options.threads, "threads (as many as there are cores)")->check(CLI::Range(1, 1024));
  app.add_flag("--summary", options.summary, "print every tensor of the model");
  app.add_flag("--quiet", options.quiet, "print the result only");

  auto* steps = app.add_option("--steps", recipe.steps, "steps in all; the learning rate falls until then")->check(count)->capture_default_str();
  auto* minutes = app.add_option("--minutes", options.minutes, "instead of --steps: as many as fit, by the speed of the first ones")
                      ->check(CLI::Range(1e-3, 1e6))
                      ->excludes(steps);
  auto* resume =
      app.add_option("--resume", options.resume, "go on with this checkpoint, by its own recipe")->check(CLI::ExistingFile)->excludes(minutes);
  auto* group = app.add_option_group("recipe", "Kept in the checkpoint: not together with --resume");
  group->add_option("--tokenizer", recipe.tokenizer, "bpe, characters or bytes")
      ->check(CLI::IsMember({"bpe", "characters", "bytes"}))
      ->capture_default_str();
  group->add_option("--vocab-size", recipe.vocab_size, "tokens of bpe, learned from the text")
      ->check(CLI::Range(heed::Index{256}, heed::Index{1} << 20))
      ->capture_default_str();
  group->add_option("--layers", recipe.layers, "blocks")->check(count)->capture_default_str();
  group->add_option("--heads", recipe.heads, "heads of attention")->check(count)->capture_default_str();
  group->add_option("--d-model", recipe.d_model, "size of an embedding: a multiple of --heads")->check(count)->capture_default_str();
  group->add_option("--context", recipe.context, "tokens that the model sees")->check(count)->capture_default_str();
  group->add_option("--dropout", recipe.dropout, "part that is dropped in training")->check(CLI::Range(0.0, 0.99))->capture_default_str();
  group->add_option("--batch", recipe.batch, "sequences in a step")->check(count)->capture_default_str();
  group->add_option("--accumulate", recipe.accumulate, "parts of a batch that are computed one after the other")->check(count)->capture_default_str();
  group->add_option("--lr", recipe.lr, "learning rate at its peak; a tenth of it at the end")->check(CLI::Range(1e-9, 10.0))->capture_default_str();
  group->add_option("--warmup", recipe.warmup, "steps until the peak")
      ->check(CLI::Range(heed::Index{0}, heed::Index{1} << 30))
      ->capture_default_str();
  group->add_option("--weight-decay", recipe.weight_decay, "of matrices")->check(CLI::Range(0.0, 10.0))->capture_default_str();
  group->add_option("--clip", recipe.clip, "largest norm of the gradients")->check(CLI::Range(1e-6, 1e6))->capture_default_str();
  group->add_option("--seed", recipe.seed, "of weights, batches, dropout and samples")->capture_default_str();
  group->excludes(resume);
  CLI11_PARSE(app, argc, argv);

  try {
    if (!options.resume.empty() && steps->count() == 0) recipe.steps = 0;  // those of the checkpoint
    if (options.resume.empty()) {
      if (recipe.d_model % recipe.heads != 0)
        throw std::runtime_error(fmt::format("--d-model: {} is not a multiple of --heads {}", recipe.d_model, recipe.heads));
      if (recipe.accumulate > recipe.batch)
        throw std::runtime_error(fmt::format("--accumulate: a batch of {} has no {} parts", recipe.batch, recipe.accumulate));
    }
    if (options.minutes > 0 && recipe.warmup < probe_steps)
      throw std::runtime_error(fmt::format("--minutes: the speed is measured in {} steps of --warmup, which has {}", probe_steps, recipe.warmup));
    if (options.threads > 0) heed::set_num_threads(options.threads);
    return run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_text: {}\n", e.what());
    return 1;
  }
}
