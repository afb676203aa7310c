// Writes text with a model: a checkpoint of examples/train_text, or GPT-2 as it is published.

#include <fmt/format.h>
#include <heed/heed.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>

using namespace heed;

namespace {

struct Options {
  std::string model, prompt;
  Index tokens = 200, top_k = 0;
  double temperature = 0.8, top_p = 0.95;
  std::uint64_t seed = 1;
  int threads = 0;
  bool greedy = false, no_cache = false, quiet = false;
};

volatile std::sig_atomic_t stopped = 0;

constexpr const char* end_of_text = "<|endoftext|>";

std::optional<Index> end_token(const nn::Tokenizer& tokenizer) {
  const auto* bpe = dynamic_cast<const nn::BpeTokenizer*>(&tokenizer);
  return bpe ? bpe->id_of(end_of_text) : std::nullopt;
}

void write(const std::string& bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
}

void run(const Options& options) {
  const auto [model, tokenizer] = nn::load_language_model(options.model);
  std::string text = options.prompt;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  const std::optional<Index> end = end_token(*tokenizer);
  std::vector<Index> ids = tokenizer->encode(text);
  if (ids.empty()) ids = end ? std::vector<Index>{*end} : tokenizer->encode("\n");
  write(text);

  std::signal(SIGINT, [](int) { stopped = 1; });
  const auto start = std::chrono::steady_clock::now();
  Index made = 0;
  const nn::Tokenizer& vocabulary = *tokenizer;
  nn::generate(model, from_vector(ids, {static_cast<Index>(ids.size())}),
               {.max_new_tokens = options.tokens,
                .temperature = options.greedy ? 0 : options.temperature,
                .top_k = options.top_k,
                .top_p = options.top_p,
                .seed = options.seed,
                .use_cache = !options.no_cache,
                .on_token = [&](const Tensor& token) {
                  ++made;
                  const Index id = token.item<Index>();
                  if (end && id == *end) return false;
                  write(vocabulary.token(id));
                  return stopped == 0;
                }});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write("\n");
  if (!options.quiet)
    fmt::print(stderr, "{} tokens in {:.2f} s: {:.0f} tokens/s\n", made, seconds, static_cast<double>(made) / std::max(seconds, 1e-9));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Writes text, token by token, with a model that examples/train_text has trained, or with GPT-2.");
  app.add_option("--model", options.model, "a checkpoint of train_text, or a folder with config.json, model.safetensors, vocab.json and merges.txt")
      ->required()
      ->check(CLI::ExistingPath);
  app.add_option("--prompt", options.prompt, "what the text begins with; - reads it from standard input (the end of a text, or a new line)");
  app.add_option("--tokens", options.tokens, "how many to write, also past what the model sees at once")
      ->check(CLI::Range(Index{0}, Index{1} << 30))
      ->capture_default_str();
  auto* greedy = app.add_flag("--greedy", options.greedy, "always the most likely token");
  app.add_option("--temperature", options.temperature, "below 1 bolder about what is likely, 0 as --greedy")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->excludes(greedy);
  app.add_option("--top-k", options.top_k, "choose among the k most likely only; 0: among all")
      ->check(CLI::Range(Index{0}, Index{1} << 30))
      ->capture_default_str();
  app.add_option("--top-p", options.top_p, "choose among the fewest that have this probability together")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "the same seed writes the same text")->capture_default_str();
  app.add_option("--threads", options.threads, "threads (as many as there are cores)")->check(CLI::Range(1, 1024));
  app.add_flag("--no-cache", options.no_cache, "compute keys and values of all tokens again for each: the same text, slower");
  app.add_flag("--quiet", options.quiet, "do not tell the speed");
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.threads > 0) set_num_threads(options.threads);
    run(options);
    return stopped ? 130 : 0;
  } catch (const std::exception& e) {
    std::fflush(stdout);
    fmt::print(stderr, "generate: {}\n", e.what());
    return 1;
  }
}
