#include "tokenizer.h"

#include <charconv>

#include "../../tensor/raise.h"
#include "bpe.h"
#include "unicode.h"

namespace heed {
namespace detail {

void check_token(const char* op, Index id, Index size) {
  if (id < 0 || id >= size) raise<IndexError>("{}: token {} is not in the vocabulary: 0 to {}", op, id, size - 1);
}

Index count_characters(std::string_view text) {
  Index n = 0;
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).length) ++n;
  return n;
}

}  // namespace detail

namespace nn {

using detail::Character;
using detail::raise;

std::string Tokenizer::decode(const std::vector<Index>& ids) const {
  std::string out;
  for (Index id : ids) out += token(id);
  return out;
}

// Bytes

std::vector<Index> ByteTokenizer::encode(std::string_view text) const {
  std::vector<Index> ids;
  ids.reserve(text.size());
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteTokenizer::token(Index id) const {
  detail::check_token("ByteTokenizer", id, 256);
  return std::string(1, static_cast<char>(id));
}

// Characters

namespace {

using Characters = std::map<std::pair<bool, char32_t>, std::string>;

Characters characters_of(std::string_view text) {
  Characters out;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = detail::character_at(text, at);
    out.try_emplace({!c.valid, c.code}, text.substr(at, c.length));
    at += c.length;
  }
  return out;
}

}  // namespace

CharTokenizer::CharTokenizer(std::string_view text) : CharTokenizer(characters_of(text)) {}

CharTokenizer::CharTokenizer(Characters characters) {
  if (characters.empty()) raise<Error>("CharTokenizer: a text without characters");
  for (auto& [key, bytes] : characters) {
    ids_[key] = static_cast<Index>(tokens_.size());
    tokens_.push_back(std::move(bytes));
  }
}

std::vector<Index> CharTokenizer::encode(std::string_view text) const {
  std::vector<Index> ids;
  ids.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = detail::character_at(text, at);
    const auto found = ids_.find({!c.valid, c.code});
    if (found == ids_.end())
      raise<IndexError>(
          "CharTokenizer: a character that is not in the vocabulary: {} at byte {}{}",
          c.valid ? fmt::format("U+{:04X}", static_cast<std::uint32_t>(c.code)) : fmt::format("the byte {:#04x}", static_cast<std::uint32_t>(c.code)),
          at, c.valid && c.code >= ' ' ? fmt::format(", {}", text.substr(at, c.length)) : "");
    ids.push_back(found->second);
    at += c.length;
  }
  return ids;
}

std::string CharTokenizer::token(Index id) const {
  detail::check_token("CharTokenizer", id, vocab_size());
  return tokens_[static_cast<std::size_t>(id)];
}

// Metadata are UTF-8, so bytes that are not are written as numbers.
std::map<std::string, std::string> CharTokenizer::metadata() const {
  std::string characters, bytes;
  for (const auto& [key, id] : ids_) {
    if (key.first)
      bytes += fmt::format("{}{}", bytes.empty() ? "" : " ", static_cast<std::uint32_t>(key.second));
    else
      characters += tokens_[static_cast<std::size_t>(id)];
  }
  return {{"tokenizer.kind", "characters"}, {"tokenizer.characters", characters}, {"tokenizer.bytes", bytes}};
}

std::unique_ptr<Tokenizer> tokenizer_from(const std::map<std::string, std::string>& metadata) {
  const auto get = [&](const char* key) -> const std::string& {
    const auto found = metadata.find(key);
    if (found == metadata.end()) raise<IoError>("tokenizer_from: the metadata have no {}", key);
    return found->second;
  };
  const std::string& kind = get("tokenizer.kind");
  if (kind == "bytes") return std::make_unique<ByteTokenizer>();
  if (kind == "bpe")
    return std::make_unique<BpeTokenizer>(BpeTokenizer::parse("tokenizer_from", get("tokenizer.vocab.json"), get("tokenizer.merges.txt")));
  if (kind != "characters") raise<IoError>("tokenizer_from: tokenizer.kind is none of bytes, characters and bpe: {}", kind.substr(0, 100));

  const std::string& text = get("tokenizer.characters");
  Characters characters = characters_of(text);
  if (detail::count_characters(text) != static_cast<Index>(characters.size())) raise<IoError>("tokenizer_from: a character twice");
  if (!characters.empty() && characters.rbegin()->first.first) raise<IoError>("tokenizer_from: tokenizer.characters are not UTF-8");
  const std::string& bytes = get("tokenizer.bytes");
  for (const char *at = bytes.data(), *end = at + bytes.size(); at != end;) {
    unsigned byte = 0;
    const auto [next, error] = std::from_chars(at, end, byte);
    // Bytes below 128 are UTF-8.
    if (error != std::errc() || byte < 128 || byte > 255 || (next != end && (*next != ' ' || next + 1 == end)) ||
        !characters.try_emplace({true, byte}, 1, static_cast<char>(byte)).second)
      raise<IoError>("tokenizer_from: tokenizer.bytes are not distinct numbers from 128 to 255: {}", bytes.substr(0, 100));
    at = next == end ? end : next + 1;
  }
  if (characters.empty()) raise<IoError>("tokenizer_from: no characters");
  return std::unique_ptr<Tokenizer>(new CharTokenizer(std::move(characters)));
}

}  // namespace nn
}  // namespace heed
