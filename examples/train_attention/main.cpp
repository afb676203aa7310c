// Trains a causal single-head attention layer on a task that one such layer can do, or on a text, proves its gradients and shows what it learned.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>

#include "pictures.h"
#include "recall.h"
#include "text.h"

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a causal single-head attention layer: on recall of pairs (the default), or as a model of the characters of a text.");
  const auto size = CLI::Range(heed::Index{1}, heed::Index{65536});
  app.add_option("--text", options.text, "learn the characters of this file instead of recall")->check(CLI::ExistingFile);
  app.add_option("--steps", options.steps, "training steps (recall 300, text 500; 0 only judges what --load brings)")
      ->check(CLI::Range(heed::Index{0}, heed::Index{100000000}));
  app.add_option("--batch", options.batch, "sequences in a step (recall 64, text 32)")->check(size);
  app.add_option("--length", options.length, "positions in a sequence (recall 12, text 64)")->check(CLI::Range(heed::Index{2}, heed::Index{65536}));
  app.add_option("--keys", options.keys, "distinct keys of recall")->check(size)->capture_default_str();
  app.add_option("--values", options.values, "distinct values of recall")
      ->check(CLI::Range(heed::Index{2}, heed::Index{65536}))
      ->capture_default_str();
  app.add_option("--d-model", options.d_model, "size of an embedding (64)")->check(size);
  app.add_option("--d-head", options.d_head, "size of queries, keys and values (recall 32)")->check(size);
  app.add_option("--optimizer", options.optimizer, "sgd, adam or adamw")->check(CLI::IsMember({"sgd", "adam", "adamw"}))->capture_default_str();
  app.add_option("--lr", options.lr, "learning rate (recall 0.01, text 0.003; sgd 0.5 and 0.3)")->check(CLI::Range(1e-9, 100.0));
  app.add_option("--seed", options.seed, "of the data and the initial weights")->capture_default_str();
  app.add_option("--threads", options.threads, "threads (as many as there are cores)")->check(CLI::Range(1, 1024));
  app.add_option("--save", options.save, "write the trained parameters to this .safetensors file");
  app.add_option("--load", options.load, "begin with the parameters of this .safetensors file")->check(CLI::ExistingFile);
  app.add_option("--csv", options.csv, "write step, loss, score and speed to this file");
  app.add_option("--pictures", options.pictures, "draw the loss and the attention into this folder, as SVG")->take_last();
  app.add_flag("--quiet", options.quiet, "print the result only");
  CLI11_PARSE(app, argc, argv);

  try {
    if (!options.pictures.empty()) make_folder(options.pictures);  // what cannot be written is said before training
    if (options.threads > 0) heed::set_num_threads(options.threads);
    heed::manual_seed(options.seed);
    return options.text.empty() ? run_recall(options) : run_text(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_attention: {}\n", e.what());
    return 1;
  }
}
