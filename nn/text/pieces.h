#pragma once

#include <string_view>
#include <vector>

namespace heed::detail {

/// The pieces that GPT-2's tokenizer never merges across; together they are `text`, byte for byte. What its pattern says, written by hand:
///
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// Letters, numbers and spaces are those of `class_of`. Bytes that are not UTF-8, which the original never sees, count as other characters.
std::vector<std::string_view> gpt2_pieces(std::string_view text);

}  // namespace heed::detail
