#include "weight_grid.h"

#include <algorithm>
#include <cmath>

#include "../autograd/grad_mode.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed::detail {
namespace {

Tensor one_head(const char* op, const Tensor& weights, std::optional<Index> head, Index batch) {
  const auto chosen = [&](const char* what, Index i, Index count) {
    if (i < 0 || i >= count) raise<IndexError>("{}: no {} {} in weights {}", op, what, i, weights.shape());
    return i;
  };
  if (weights.dim() == 2) return weights;
  if (weights.dim() < 2 || weights.dim() > 4 || !head)
    raise<ShapeError>("{}: wants the weights of one head, (Tq, Tk), or weights with heads and .head to choose one: shape {}", op, weights.shape());
  const NoGrad off;
  const Tensor heads = weights.dim() == 4 ? select(weights, 0, chosen("batch entry", batch, weights.size(0))) : weights;
  return select(heads, 0, chosen("head", *head, heads.size(0)));
}

/// Bytes of the character that starts `s`: RFC 3629, without overlong forms and surrogates. 0 where none starts.
std::size_t character_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80, high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (first < 0xc2 || first > 0xf4 || second < low || second > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

std::string printable(std::string_view character) {
  const auto c = static_cast<unsigned char>(character[0]);
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  const bool control = c < 0x20 || c == 0x7f || (c == 0xc2 && character.size() == 2 && static_cast<unsigned char>(character[1]) < 0xa0);
  const bool not_xml = character == "\xef\xbf\xbe" || character == "\xef\xbf\xbf";
  if (!control && !not_xml && character_length(character) == character.size()) return std::string(character);
  std::string out;
  for (char b : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(b));
  return out;
}

}  // namespace

std::optional<double> WeightGrid::cell(std::size_t i, std::size_t j, std::size_t height, std::size_t width) const {
  std::optional<double> value;
  for (std::size_t r = i; r < std::min(i + height, rows); ++r)
    for (std::size_t c = j; c < std::min(j + width, columns); ++c) {
      const double w = weights[r * columns + c];
      if (allowed[r * columns + c] && (!value || std::isnan(w) || w > *value)) value = w;
    }
  return value;
}

double WeightGrid::share(double weight) const { return largest > 0 ? std::clamp(weight / largest, 0.0, 1.0) : 0; }

WeightGrid weight_grid(const char* op, const Tensor& all, const Tensor& allowed, std::optional<Index> head, Index batch) {
  const Tensor weights = one_head(op, all, head, batch);
  if (allowed.defined() && (allowed.shape() != weights.shape() || allowed.dtype() != boolean))
    raise<ShapeError>("{}: wants allowed boolean, in the weights' shape: allowed is {} {}, the weights {}", op, allowed.dtype(), allowed.shape(),
                      weights.shape());
  WeightGrid grid{static_cast<std::size_t>(weights.size(0)), static_cast<std::size_t>(weights.size(1)), weights.to_vector<double>(), {}, 0};
  grid.allowed = allowed.defined() ? allowed.to_vector<bool>() : std::vector<bool>(grid.weights.size(), true);
  for (std::size_t i = 0; i < grid.weights.size(); ++i)
    if (grid.allowed[i] && std::isfinite(grid.weights[i])) grid.largest = std::max(grid.largest, grid.weights[i]);
  return grid;
}

std::vector<std::string> labels(const std::vector<std::string>& given, std::size_t count, std::size_t longest) {
  std::vector<std::string> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= given.size()) {
      out[i] = fmt::format("{}", i);
      continue;
    }
    std::string text;
    for (std::string_view c : characters(given[i])) text += printable(c);
    const std::vector<std::string_view> parts = characters(text);
    const bool fits = parts.size() <= longest;
    for (std::size_t p = 0; p < (fits ? parts.size() : longest - std::min<std::size_t>(longest, 2)); ++p) out[i] += parts[p];
    if (!fits) out[i] += "..";
  }
  return out;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size(); at += out.back().size()) {
    const std::string_view rest = text.substr(at);
    out.push_back(rest.substr(0, std::max<std::size_t>(character_length(rest), 1)));
  }
  return out;
}

std::size_t widest(const std::vector<std::string>& texts) {
  std::size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, characters(text).size());
  return width;
}

}  // namespace heed::detail
