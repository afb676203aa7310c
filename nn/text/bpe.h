#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "tokenizer.h"

namespace heed::nn {

/// What is to be learned.
struct BpeTrainOptions {
  Index vocab_size = 1024;                                      ///< at most: merges end when no pair comes twice
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  ///< come last in the vocabulary; no text is encoded as one of them
};

/// GPT-2's byte-level byte pair encoding (Radford et al., "Language models are unsupervised multitask learners", 2019; Sennrich et al., "Neural
/// machine translation of rare words with subword units", 2016). A text falls into pieces, words with the blank before them (see
/// `detail::gpt2_pieces`); in each piece, which begins as single bytes, the neighbors whose merge was learned first are joined, the leftmost first,
/// until no merge is left.
///
/// Files are those published for GPT-2: vocab.json, {"token": number}, and merges.txt, "left right" a line in the order learned, after a line that
/// begins with "#version". Both write bytes as printable characters: 33-126, 161-172 and 174-255 as the character of that number, the others, in
/// order, as U+0100 and on.
class BpeTokenizer final : public Tokenizer {
 public:
  /// IoError with the file, the rule and the token or line: not JSON, a key twice, numbers that are not 0 to n - 1, a character that stands for no
  /// byte, a byte without a token, a merge twice, a merge of or into what is not in the vocabulary.
  static BpeTokenizer load(const std::filesystem::path& vocab_json, const std::filesystem::path& merges_txt);
  /// vocab.json and merges.txt in a folder.
  static BpeTokenizer load(const std::filesystem::path& folder) { return load(folder / "vocab.json", folder / "merges.txt"); }
  /// The same from the contents of the files; `where` stands first in error texts.
  static BpeTokenizer parse(const std::string& where, std::string_view vocab_json, std::string_view merges_txt);

  /// Learns merges from a text: again and again the most frequent pair of neighbors becomes a token; of equals the one with the smaller numbers.
  /// Error when vocab_size has no room for the 256 bytes and the special tokens, or for a special token that is empty, twice, or a byte.
  static BpeTokenizer train(std::string_view text, const BpeTrainOptions& = {});

  /// Writes the two files, each whole or not at all.
  void save(const std::filesystem::path& vocab_json, const std::filesystem::path& merges_txt) const;
  /// As vocab.json and merges.txt in a folder.
  void save(const std::filesystem::path& folder) const { save(folder / "vocab.json", folder / "merges.txt"); }

  Index vocab_size() const override { return static_cast<Index>(tokens_.size()); }
  std::vector<Index> encode(std::string_view text) const override;
  std::string token(Index id) const override;
  std::map<std::string, std::string> metadata() const override;

  /// The number of the token with these bytes: of "<|endoftext|>", for one, which `encode` never gives.
  std::optional<Index> id_of(std::string_view bytes) const;

 private:
  struct Merge {
    Index rank, result;
  };
  using Pair = std::pair<Index, Index>;

  BpeTokenizer() = default;
  /// Takes the tokens by number. `fail(text)` throws.
  template <class F>
  void set_tokens(std::vector<std::string> tokens, F fail);
  static std::uint64_t key(Pair p) { return static_cast<std::uint64_t>(p.first) << 32 | static_cast<std::uint64_t>(p.second); }
  void encode_piece(std::string_view piece, std::vector<Index>& out) const;
  std::string vocab_json() const;
  std::string merges_txt() const;

  std::vector<std::string> tokens_;  ///< their bytes
  std::unordered_map<std::string, Index> ids_;
  std::array<Index, 256> bytes_{};
  std::vector<Pair> merges_;  ///< in the order learned
  std::unordered_map<std::uint64_t, Merge> by_pair_;
};

}  // namespace heed::nn

namespace heed::detail {

/// The bytes in the order of GPT-2's vocabulary: those that are printable first.
const std::array<unsigned char, 256>& gpt2_byte_order();

}  // namespace heed::detail
