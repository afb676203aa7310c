#pragma once

#include <cstddef>
#include <string_view>

namespace heed::detail {

/// What GPT-2's pattern tells apart: general categories L* and N* of Unicode 14.0, the White_Space property, everything else.
enum class CharClass { letter, number, space, other };

/// The class of a code point, assigned or not.
CharClass class_of(char32_t code);

/// A character as bytes hold it.
struct Character {
  char32_t code;       ///< the byte's value when not `valid`
  std::size_t length;  ///< in bytes
  bool valid;          ///< false: one byte that begins no UTF-8 character here (overlong forms and surrogates are none either)
};

/// The character that begins at `at`, which lies inside of `bytes`.
Character character_at(std::string_view bytes, std::size_t at);

}  // namespace heed::detail
