#include "text.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

using namespace heed;

extern char** environ;

Text::Text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  bytes_.assign(std::istreambuf_iterator<char>(in), {});
  if (in.bad() || !in.is_open()) throw std::runtime_error(fmt::format("cannot read {}", path));
  if (bytes_.size() < 100) throw std::runtime_error(fmt::format("{}: {} bytes are too few to learn from", path, bytes_.size()));
  cut_ = bytes_.size() / 10 * 9;
  // Not inside of a character.
  for (int i = 0; i < 3 && cut_ + 1 < bytes_.size() && (static_cast<unsigned char>(bytes_[cut_]) & 0xC0) == 0x80; ++i) ++cut_;
}

std::string Text::fingerprint() const {
  std::uint64_t hash = 14695981039346656037u;
  for (char c : bytes_) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return fmt::format("{} bytes, {:016x}", bytes_.size(), hash);
}

std::unique_ptr<nn::Tokenizer> make_tokenizer(const std::string& kind, const Text& text, Index vocab_size) {
  if (kind == "bytes") return std::make_unique<nn::ByteTokenizer>();
  if (kind == "characters") return std::make_unique<nn::CharTokenizer>(text.all());
  return std::make_unique<nn::BpeTokenizer>(nn::BpeTokenizer::train(text.train(), {.vocab_size = vocab_size, .special_tokens = {}}));
}

Baselines baselines_of(const Text& text) {
  const nn::CharTokenizer characters(text.all());
  const auto data = nn::TokenDataset::from_parts(characters.encode(text.train()), characters.encode(text.held_out()));
  Baselines out{nn::unigram_bits(data, characters.vocab_size()), nn::bigram_bits(data, characters.vocab_size()), {}};
  if (const auto size = xz_size(text.held_out())) out.xz = 8 * static_cast<double>(*size) / static_cast<double>(data.held_out_size());
  return out;
}

std::optional<std::size_t> xz_size(std::string_view data) {
  struct File {
    std::FILE* file = std::tmpfile();
    ~File() {
      if (file) std::fclose(file);
    }
  } in, out;
  if (!in.file || !out.file || std::fwrite(data.data(), 1, data.size(), in.file) != data.size() || std::fflush(in.file) != 0) return std::nullopt;
  std::rewind(in.file);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.file), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.file), STDOUT_FILENO);
  char name[] = "xz", best[] = "-9", to_stdout[] = "-c";
  char* arguments[] = {name, best, to_stdout, nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, name, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  struct stat made;
  if (fstat(fileno(out.file), &made) != 0) return std::nullopt;
  return static_cast<std::size_t>(made.st_size);
}
