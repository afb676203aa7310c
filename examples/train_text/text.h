#pragma once

#include <heed/heed.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// A text, nine tenths to learn from and the last tenth to be judged on.
class Text {
 public:
  /// Reads a file. Throws for one that cannot be read and for one with fewer than 100 bytes.
  explicit Text(const std::string& path);

  std::string_view all() const { return bytes_; }
  std::string_view train() const { return std::string_view(bytes_).substr(0, cut_); }
  std::string_view held_out() const { return std::string_view(bytes_).substr(cut_); }
  /// Tells this text from others: its size and a hash (FNV-1a).
  std::string fingerprint() const;

 private:
  std::string bytes_;
  std::size_t cut_ = 0;  ///< between two characters
};

/// Characters, bytes or bpe. What bpe learns, it learns from the training part; characters are those of the whole text.
std::unique_ptr<heed::nn::Tokenizer> make_tokenizer(const std::string& kind, const Text&, heed::Index vocab_size);

/// What the held-out part costs in bits a character without a language model. Unigrams and bigrams of characters are counted on the training part,
/// xz -9 sees the held-out part alone; nothing where there is no xz.
struct Baselines {
  double unigram, bigram;
  std::optional<double> xz;
};
Baselines baselines_of(const Text&);

/// Bytes that `xz -9` makes of `data`; nothing where the program is absent or fails.
std::optional<std::size_t> xz_size(std::string_view data);
