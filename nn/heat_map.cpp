#include "heat_map.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "../tensor/raise.h"
#include "weight_grid.h"

namespace heed::nn {
namespace {

constexpr std::string_view ramp = ".:-=+*#%@";  // light to dark; a blank is a masked cell
// Of the 256-color palette, from violet over green to yellow: zero stands out from black and from white terminals, where masked cells are.
constexpr std::array<int, 9> palette = {54, 60, 24, 30, 36, 71, 113, 148, 226};
static_assert(ramp.size() == palette.size());

/// A cell, two characters wide.
std::string cell(double share, Ink ink) {
  if (std::isnan(share)) return "??";
  const auto level = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(ramp.size() - 1) + 0.5);
  if (ink == Ink::ascii) return {ramp[level], ramp[level]};
  return fmt::format("\x1b[48;5;{}m  \x1b[0m", palette[level]);
}

}  // namespace

Ink ink_for(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool plain = (no_color && *no_color) || (term && std::string_view(term) == "dumb") || !isatty(fileno(stream));
  return plain ? Ink::ascii : Ink::color;
}

std::string heat_map(const Tensor& all, const HeatMapOptions& options) {
  const detail::WeightGrid grid = detail::weight_grid("heat_map", all, options.allowed, options.head, options.batch);
  const auto width = static_cast<std::size_t>(std::max<Index>(options.width, 24));
  const std::vector<std::string> queries = detail::labels(options.queries, grid.rows, width / 2 - 4),
                                 keys = detail::labels(options.keys, grid.columns, 24);
  const std::size_t left = detail::widest(queries) + 2, cells = (width - left) / 2;
  const std::size_t shared = std::max<std::size_t>((grid.columns + cells - 1) / cells, 1);  // keys in a cell

  std::string out;
  for (std::size_t line = 0; shared == 1 && line < detail::widest(keys); ++line) {
    std::string text(left, ' ');
    for (const std::string& key : keys) {
      const std::vector<std::string_view> name = detail::characters(key);
      text += line < name.size() ? name[line] : " ";
      text += ' ';
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  }
  for (std::size_t i = 0; i < grid.rows; ++i) {
    out += std::string(left - 2 - detail::characters(queries[i]).size(), ' ') + queries[i] + "  ";
    std::string text;
    for (std::size_t j = 0; j < grid.columns; j += shared) {
      const std::optional<double> weight = grid.cell(i, j, 1, shared);
      text += weight ? cell(std::isfinite(*weight) ? grid.share(*weight) : NAN, options.ink) : "  ";
    }
    if (options.ink == Ink::ascii) text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  }

  std::string scale = "0 ", note = fmt::format(" {:.3g}", grid.largest);
  for (std::size_t level = 0; level < ramp.size(); ++level)
    scale += cell(static_cast<double>(level) / static_cast<double>(ramp.size() - 1), options.ink);
  if (options.allowed.defined()) note += ", blank: masked";
  if (shared > 1) note += fmt::format(", {} keys to a cell", shared);
  // Below the cells where there is room for it.
  const std::size_t length = 2 + 2 * ramp.size() + note.size();
  return out + std::string(std::min(left, width - std::min(width, length)), ' ') + scale + note + '\n';
}

}  // namespace heed::nn
