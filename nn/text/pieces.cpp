#include "pieces.h"

#include "unicode.h"

namespace heed::detail {
namespace {

/// Bytes of the contraction at the start of `text`, or 0.
std::size_t contraction(std::string_view text) {
  for (std::string_view c : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(c)) return c.size();
  return 0;
}

CharClass class_at(std::string_view text, std::size_t at, std::size_t& length) {
  const Character c = character_at(text, at);
  length = c.length;
  return c.valid ? class_of(c.code) : CharClass::other;
}

/// Where the run of characters of that class ends; `last` gets where its last character begins.
std::size_t end_of_run(std::string_view text, std::size_t at, CharClass wanted, std::size_t& last) {
  std::size_t length = 0;
  while (at < text.size() && class_at(text, at, length) == wanted) last = at, at += length;
  return at;
}

}  // namespace

std::vector<std::string_view> gpt2_pieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    std::size_t length = 0, last = at;
    if (const std::size_t short_form = contraction(text.substr(at))) {
      end = at + short_form;
    } else {
      // One blank belongs to the run of anything but spaces that follows.
      const std::size_t begin = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
      CharClass run = class_at(text, begin, length);
      if (run == CharClass::space) {
        end = end_of_run(text, at, run, last);
        // The last of several spaces is left to what follows.
        if (end < text.size() && last > at) end = last;
      } else {
        end = end_of_run(text, begin, run, last);
      }
    }
    pieces.push_back(text.substr(at, end - at));
  }
  return pieces;
}

}  // namespace heed::detail
