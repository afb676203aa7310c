#pragma once

// Formatters for fmt of everything that prints, as <heed/fmt.h>; its users link fmt.

#include "autograd/mask.h"
#include "tensor/format.h"

template <>
struct fmt::formatter<heed::Mask> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const heed::Mask& mask, fmt::format_context& context) const { return fmt::format_to(context.out(), "{}", to_string(mask)); }
};
