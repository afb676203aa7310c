#include <heed/nn/text/bpe.h>
#include <heed/tensor/error.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

/// Any bytes as vocab.json and merges.txt, parted by a zero byte, and as merges for a vocabulary of bytes and some pairs: an IoError, or a tokenizer
/// that brings every text back.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  static const std::string vocab =
      heed::nn::BpeTokenizer::train("the then that than banana bananas", {.vocab_size = 270}).metadata().at("tokenizer.vocab.json");
  const auto try_files = [&](const std::string& vocab_json, const std::string& merges_txt) {
    try {
      const auto tokenizer = heed::nn::BpeTokenizer::parse("fuzz", vocab_json, merges_txt);
      if (tokenizer.decode(tokenizer.encode(input)) != input) std::abort();
    } catch (const heed::IoError&) {
    }
  };
  const std::size_t cut = std::min(input.find('\0'), size);
  try_files(input.substr(0, cut), cut < size ? input.substr(cut + 1) : "");
  try_files(vocab, input);
  return 0;
}
