#include "bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <tuple>

#include "../../tensor/io/file.h"
#include "../../tensor/raise.h"
#include "pieces.h"
#include "unicode.h"

namespace heed {
namespace detail {
namespace {

bool is_printable(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

/// The code point that stands for each byte.
const std::array<char32_t, 256>& code_of_byte() {
  static const auto codes = [] {
    std::array<char32_t, 256> out{};
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) out[static_cast<std::size_t>(b)] = is_printable(b) ? static_cast<char32_t>(b) : next++;
    return out;
  }();
  return codes;
}

/// Bytes as the files write them. All code points are below U+0800.
std::string printable(std::string_view bytes) {
  std::string out;
  for (char b : bytes) {
    const char32_t code = code_of_byte()[static_cast<unsigned char>(b)];
    if (code >= 0x80) out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3F));
  }
  return out;
}

/// The other way; nothing when a character stands for no byte.
std::optional<std::string> bytes_of(std::string_view text) {
  static const auto byte_of_code = [] {
    std::array<int, 512> out{};
    out.fill(-1);
    for (std::size_t b = 0; b < 256; ++b) out[code_of_byte()[b]] = static_cast<int>(b);
    return out;
  }();
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (!c.valid || c.code >= byte_of_code.size() || byte_of_code[c.code] < 0) return std::nullopt;
    out += static_cast<char>(byte_of_code[c.code]);
    at += c.length;
  }
  return out;
}

/// A text from a file for an error text.
std::string in_quotes(std::string_view text) {
  return nlohmann::json(std::string(text.substr(0, 100))).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Events of nlohmann's parser: keys that come twice are seen, and nothing is nested.
class VocabReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit VocabReader(const std::string& where) : where_(where) {}
  std::unordered_map<std::string, std::uint64_t> take() { return std::move(numbers_); }

  bool start_object(std::size_t) override { return std::exchange(open_, true) ? fail("an object as the number of {}", in_quotes(key_)) : true; }
  bool key(std::string& key) override {
    key_ = key;
    return numbers_.contains(key) ? fail("the token {} twice", in_quotes(key)) : true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (!open_) fail("not an object: a number");
    numbers_[key_] = value;
    return true;
  }
  bool end_object() override { return true; }
  bool end_array() override { return true; }
  bool start_array(std::size_t) override { return wrong("an array"); }
  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_integer(std::int64_t) override { return wrong("a negative number"); }
  bool number_float(double, const std::string&) override { return wrong("a number that is not whole or too large"); }
  bool string(std::string&) override { return wrong("a string"); }
  bool binary(nlohmann::json::binary_t&) override { return wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail("not JSON: at byte {}", position);
  }

 private:
  template <class... A>
  bool fail(fmt::format_string<A...> rule, A&&... args) const {
    raise<IoError>("{}: vocab.json: {}", where_, fmt::format(rule, std::forward<A>(args)...));
  }
  bool wrong(const char* what) const { return open_ ? fail("{} as the number of {}", what, in_quotes(key_)) : fail("not an object: {}", what); }

  const std::string& where_;
  bool open_ = false;
  std::string key_;
  std::unordered_map<std::string, std::uint64_t> numbers_;
};

std::string read_text(const char* op, const std::filesystem::path& path) {
  FileSource in(op, path);
  std::string text(static_cast<std::size_t>(in.size()), '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const char* op, const std::filesystem::path& path, const std::string& text) {
  AtomicFile out(op, path);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

}  // namespace

const std::array<unsigned char, 256>& gpt2_byte_order() {
  static const auto order = [] {
    std::array<unsigned char, 256> out{};
    for (std::size_t b = 0; b < 256; ++b) out[b] = static_cast<unsigned char>(b);
    std::stable_partition(out.begin(), out.end(), [](unsigned char b) { return is_printable(b); });
    return out;
  }();
  return order;
}

}  // namespace detail

namespace nn {

using detail::in_quotes;
using detail::printable;
using detail::raise;

template <class F>
void BpeTokenizer::set_tokens(std::vector<std::string> tokens, F fail) {
  tokens_ = std::move(tokens);
  for (std::size_t i = 0; i < tokens_.size(); ++i) ids_[tokens_[i]] = static_cast<Index>(i);
  for (std::size_t b = 0; b < 256; ++b) {
    const auto found = ids_.find(std::string(1, static_cast<char>(b)));
    if (found == ids_.end()) fail(fmt::format("the byte {} has no token", b));
    bytes_[b] = found->second;
  }
}

BpeTokenizer BpeTokenizer::load(const std::filesystem::path& vocab_json, const std::filesystem::path& merges_txt) {
  const std::string vocab = detail::read_text("BpeTokenizer::load", vocab_json), merges = detail::read_text("BpeTokenizer::load", merges_txt);
  return parse("BpeTokenizer::load: " + vocab_json.parent_path().string(), vocab, merges);
}

BpeTokenizer BpeTokenizer::parse(const std::string& where, std::string_view vocab_json, std::string_view merges_txt) {
  // The parser would take a zero byte for the end of its input.
  if (vocab_json.find('\0') != std::string_view::npos) raise<IoError>("{}: vocab.json: a zero byte", where);
  detail::VocabReader reader(where);
  nlohmann::json::sax_parse(vocab_json.begin(), vocab_json.end(), &reader);
  const auto numbers = reader.take();
  if (numbers.size() > std::size_t{1} << 31) raise<IoError>("{}: vocab.json: {} tokens: at most 2^31 are read", where, numbers.size());
  std::vector<std::string> tokens(numbers.size());
  std::vector<bool> taken(numbers.size());
  for (const auto& [text, number] : numbers) {
    if (number >= numbers.size() || taken[number])
      raise<IoError>("{}: vocab.json: the numbers of {} tokens are not 0 to {}: {} has {}", where, numbers.size(), numbers.size() - 1,
                     in_quotes(text), number);
    auto bytes = detail::bytes_of(text);
    if (!bytes || bytes->empty()) raise<IoError>("{}: vocab.json: a token with a character that stands for no byte: {}", where, in_quotes(text));
    tokens[number] = std::move(*bytes);
    taken[number] = true;
  }
  BpeTokenizer out;
  out.set_tokens(std::move(tokens), [&](const std::string& what) { raise<IoError>("{}: vocab.json: {}", where, what); });

  std::size_t line_number = 0;
  for (std::size_t at = 0; at < merges_txt.size();) {
    const std::size_t end = std::min(merges_txt.find('\n', at), merges_txt.size());
    std::string_view line = merges_txt.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number == 1 && line.starts_with("#version")) continue;
    if (line.empty() && at >= merges_txt.size()) break;
    const auto fail = [&](const char* rule) { raise<IoError>("{}: merges.txt: line {}: {}: {}", where, line_number, rule, in_quotes(line)); };
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size() || line.find(' ', blank + 1) != std::string_view::npos)
      fail("not two tokens with a blank between them");
    const auto left = detail::bytes_of(line.substr(0, blank)), right = detail::bytes_of(line.substr(blank + 1));
    if (!left || !right) fail("a character that stands for no byte");
    const auto a = out.ids_.find(*left), b = out.ids_.find(*right), result = out.ids_.find(*left + *right);
    if (a == out.ids_.end() || b == out.ids_.end()) fail("a merge of what is not in the vocabulary");
    if (result == out.ids_.end()) fail("a merge into what is not in the vocabulary");
    const Pair pair{a->second, b->second};
    if (!out.by_pair_.try_emplace(key(pair), Merge{static_cast<Index>(out.merges_.size()), result->second}).second) fail("a merge twice");
    out.merges_.push_back(pair);
  }
  return out;
}

void BpeTokenizer::save(const std::filesystem::path& vocab, const std::filesystem::path& merges) const {
  detail::write_text("BpeTokenizer::save", vocab, vocab_json());
  detail::write_text("BpeTokenizer::save", merges, merges_txt());
}

std::string BpeTokenizer::vocab_json() const {
  std::string out;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    out += fmt::format("{}{}: {}", i == 0 ? "{" : ", ", nlohmann::json(printable(tokens_[i])).dump(-1, ' ', true), i);
  return out + "}";
}

std::string BpeTokenizer::merges_txt() const {
  std::string out = "#version: 0.2\n";
  for (const auto& [a, b] : merges_)
    out += printable(tokens_[static_cast<std::size_t>(a)]) + " " + printable(tokens_[static_cast<std::size_t>(b)]) + "\n";
  return out;
}

std::map<std::string, std::string> BpeTokenizer::metadata() const {
  return {{"tokenizer.kind", "bpe"}, {"tokenizer.vocab.json", vocab_json()}, {"tokenizer.merges.txt", merges_txt()}};
}

std::string BpeTokenizer::token(Index id) const {
  detail::check_token("BpeTokenizer", id, vocab_size());
  return tokens_[static_cast<std::size_t>(id)];
}

std::optional<Index> BpeTokenizer::id_of(std::string_view bytes) const {
  const auto found = ids_.find(std::string(bytes));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Index> BpeTokenizer::encode(std::string_view text) const {
  std::vector<Index> out;
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known;  // where in `out` the tokens of a piece are
  for (std::string_view piece : detail::gpt2_pieces(text)) {
    const auto [entry, is_new] = known.try_emplace(piece, out.size(), 0);
    auto& [begin, count] = entry->second;
    if (is_new) {
      encode_piece(piece, out);
      count = out.size() - begin;
    } else {
      for (std::size_t i = 0; i < count; ++i) out.push_back(out[begin + i]);
    }
  }
  return out;
}

/// A heap of the merges that could be made, over a list of tokens linked by position: n log n for pieces of any length.
void BpeTokenizer::encode_piece(std::string_view piece, std::vector<Index>& out) const {
  constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Part {
    Index id;
    std::size_t before, after;
  };
  struct Candidate {
    Index rank;
    std::size_t at;
    Pair pair;
    bool operator>(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < piece.size(); ++i)
    parts.push_back({bytes_[static_cast<unsigned char>(piece[i])], i == 0 ? none : i - 1, i + 1 == piece.size() ? none : i + 1});
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::size_t at) {
    if (at == none || parts[at].after == none) return;
    const Pair pair{parts[at].id, parts[parts[at].after].id};
    if (const auto found = by_pair_.find(key(pair)); found != by_pair_.end()) candidates.push({found->second.rank, at, pair});
  };
  for (std::size_t i = 0; i < parts.size(); ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate c = candidates.top();
    candidates.pop();
    Part& left = parts[c.at];
    // Was one of the two merged meanwhile? Parts that are gone have the number -1.
    if (left.after == none || Pair{left.id, parts[left.after].id} != c.pair) continue;
    Part& right = parts[left.after];
    left.id = by_pair_.at(key(c.pair)).result;
    right.id = -1;
    left.after = right.after;
    if (left.after != none) parts[left.after].before = c.at;
    consider(left.before);
    consider(c.at);
  }
  for (std::size_t at = piece.empty() ? none : 0; at != none; at = parts[at].after) out.push_back(parts[at].id);
}

// Training

BpeTokenizer BpeTokenizer::train(std::string_view text, const BpeTrainOptions& options) {
  const auto specials = static_cast<Index>(options.special_tokens.size());
  if (options.vocab_size < 256 + specials || options.vocab_size > Index{1} << 31)
    raise<Error>("BpeTokenizer::train: vocab_size {} has no room for 256 bytes and {} special tokens, or is above 2^31", options.vocab_size,
                 specials);
  std::vector<std::string> tokens;
  for (unsigned char b : detail::gpt2_byte_order()) tokens.emplace_back(1, static_cast<char>(b));
  BpeTokenizer out;
  out.set_tokens(tokens, [](const std::string&) {});

  // Each distinct piece once, with how often it comes; sorted, so that nothing depends on the order of a hash table.
  std::map<std::string_view, Index> counted;
  for (std::string_view piece : detail::gpt2_pieces(text)) ++counted[piece];
  struct Word {
    std::vector<Index> parts;
    Index count;
  };
  std::vector<Word> words;
  struct Occurrences {
    Index count = 0;
    std::vector<std::size_t> words;  ///< where it was seen; may be there no more
  };
  std::unordered_map<std::uint64_t, Occurrences> pairs;
  struct Frequent {
    Index count;
    Pair pair;
    bool operator<(const Frequent& other) const { return count != other.count ? count < other.count : pair > other.pair; }
  };
  std::priority_queue<Frequent> queue;
  const auto seen_in = [&](Pair pair, std::size_t word) {
    Occurrences& o = pairs[key(pair)];
    if (o.words.empty() || o.words.back() != word) o.words.push_back(word);
  };
  for (const auto& [piece, count] : counted) {
    Word word{{}, count};
    for (char c : piece) word.parts.push_back(out.bytes_[static_cast<unsigned char>(c)]);
    for (std::size_t i = 1; i < word.parts.size(); ++i) {
      const Pair pair{word.parts[i - 1], word.parts[i]};
      pairs[key(pair)].count += count;
      seen_in(pair, words.size());
    }
    words.push_back(std::move(word));
  }
  for (const auto& [k, o] : pairs) queue.push({o.count, {static_cast<Index>(k >> 32), static_cast<Index>(k & 0xffffffff)}});

  while (out.vocab_size() + specials < options.vocab_size && !queue.empty()) {
    const Frequent best = queue.top();
    queue.pop();
    const auto found = pairs.find(key(best.pair));
    if (found == pairs.end()) continue;
    if (found->second.count != best.count) {  // counts have changed since it was queued
      if (found->second.count > 0) queue.push({found->second.count, best.pair});
      continue;
    }
    if (best.count < 2) break;
    const auto [a, b] = best.pair;
    // Two ways may lead to the same bytes: then they lead to the same token.
    const std::string bytes = out.tokens_[static_cast<std::size_t>(a)] + out.tokens_[static_cast<std::size_t>(b)];
    const auto [entry, is_new] = out.ids_.try_emplace(bytes, out.vocab_size());
    if (is_new) out.tokens_.push_back(bytes);
    const Index result = entry->second;
    // And such a token may stand again where a pair was merged before.
    if (out.by_pair_.try_emplace(key(best.pair), Merge{static_cast<Index>(out.merges_.size()), result}).second) out.merges_.push_back(best.pair);

    const std::vector<std::size_t> where = std::move(found->second.words);
    pairs.erase(found);
    std::vector<Pair> grown;
    for (std::size_t w : where) {
      Word& word = words[w];
      std::vector<Index> parts;
      for (std::size_t i = 0; i < word.parts.size(); ++i) {
        const bool joins = i + 1 < word.parts.size() && word.parts[i] == a && word.parts[i + 1] == b;
        parts.push_back(joins ? result : word.parts[i]);
        if (joins) ++i;
      }
      if (parts.size() == word.parts.size()) continue;
      for (std::size_t i = 1; i < word.parts.size(); ++i)
        if (const Pair old{word.parts[i - 1], word.parts[i]}; old != best.pair) pairs[key(old)].count -= word.count;
      for (std::size_t i = 1; i < parts.size(); ++i) {
        const Pair now{parts[i - 1], parts[i]};
        pairs[key(now)].count += word.count;
        if (now.first != result && now.second != result) continue;
        seen_in(now, w);
        grown.push_back(now);
      }
      word.parts = std::move(parts);
    }
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const Pair& p : grown) queue.push({pairs[key(p)].count, p});
  }
  for (const std::string& special : options.special_tokens) {
    if (special.empty() || !out.ids_.try_emplace(special, out.vocab_size()).second)
      raise<Error>("BpeTokenizer::train: a special token that is empty or in the vocabulary already: {}", in_quotes(special));
    out.tokens_.push_back(special);
  }
  return out;
}

}  // namespace nn
}  // namespace heed
