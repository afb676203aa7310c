#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../tensor/layout.h"

namespace heed::nn {

/// A text as token numbers 0 <= id < vocab_size(), and back: `decode(encode(text)) == text` for every text that can be encoded, whatever its bytes.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual Index vocab_size() const = 0;  ///< how many tokens there are
  /// The numbers of the tokens that make the text, in order.
  virtual std::vector<Index> encode(std::string_view text) const = 0;
  /// The bytes of one token, which may be a part of a UTF-8 character. IndexError for a number outside of the vocabulary.
  virtual std::string token(Index id) const = 0;
  /// What `tokenizer_from` makes this tokenizer from again: strings for the metadata of a checkpoint, with keys that begin with "tokenizer.".
  virtual std::map<std::string, std::string> metadata() const = 0;

  /// The bytes of all tokens, one after the other. IndexError as `token`.
  std::string decode(const std::vector<Index>& ids) const;
};

/// The tokenizer in the metadata of a checkpoint; other keys are ignored. IoError when there is none, or none that makes sense.
std::unique_ptr<Tokenizer> tokenizer_from(const std::map<std::string, std::string>& metadata);

/// Bytes are the tokens: 256 of them, for any text.
class ByteTokenizer final : public Tokenizer {
 public:
  Index vocab_size() const override { return 256; }
  std::vector<Index> encode(std::string_view text) const override;
  std::string token(Index id) const override;
  std::map<std::string, std::string> metadata() const override { return {{"tokenizer.kind", "bytes"}}; }
};

/// The characters of a text are the tokens: its distinct Unicode code points, sorted; bytes that are not UTF-8 are characters of their own and come
/// after them. A character that the text did not have has no number: `encode` throws IndexError with its place.
class CharTokenizer final : public Tokenizer {
 public:
  /// Error for an empty text.
  explicit CharTokenizer(std::string_view text);

  Index vocab_size() const override { return static_cast<Index>(tokens_.size()); }
  std::vector<Index> encode(std::string_view text) const override;
  std::string token(Index id) const override;
  std::map<std::string, std::string> metadata() const override;

 private:
  friend std::unique_ptr<Tokenizer> tokenizer_from(const std::map<std::string, std::string>&);
  explicit CharTokenizer(std::map<std::pair<bool, char32_t>, std::string> characters);

  std::vector<std::string> tokens_;
  std::map<std::pair<bool, char32_t>, Index> ids_;  ///< by (is not UTF-8, code point or byte)
};

}  // namespace heed::nn

namespace heed::detail {

/// IndexError unless 0 <= id < size.
void check_token(const char* op, Index id, Index size);
/// Characters of a text as CharTokenizer counts them.
Index count_characters(std::string_view text);

}  // namespace heed::detail
