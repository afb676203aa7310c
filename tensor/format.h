#pragma once

// fmt's formatters for what prints through a stream, without format specs; its users link fmt.

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "dtype.h"
#include "layout.h"
#include "number.h"
#include "tensor.h"

namespace heed::detail {

// What operator<< writes.
std::string text(DType);
std::string text(const Dims&);
std::string text(const Tensor&);
/// All digits of a whole number.
std::string text(const Number&);

/// Not fmt's own formatter for streamable types: the parser of format specs that it inherits makes g++ 12 warn in every file that uses it.
template <class T>
struct TextFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const T& value, fmt::format_context& context) const {
    const std::string written = text(value);
    return std::copy(written.begin(), written.end(), context.out());
  }
};

}  // namespace heed::detail

template <>
struct fmt::formatter<heed::DType> : heed::detail::TextFormatter<heed::DType> {};
template <>
struct fmt::formatter<heed::Dims> : heed::detail::TextFormatter<heed::Dims> {};
template <>
struct fmt::formatter<heed::Tensor> : heed::detail::TextFormatter<heed::Tensor> {};
template <>
struct fmt::formatter<heed::detail::Number> : heed::detail::TextFormatter<heed::detail::Number> {};
