#include "heat_map.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "../autograd/grad_mode.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed::nn {
namespace {

constexpr std::string_view ramp = ".:-=+*#%@";  // light to dark; a blank is a masked cell

/// A cell, two characters wide.
std::string cell(double share, Ink ink) {
  const auto level = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(ramp.size() - 1) + 0.5);
  const char c = std::isnan(share) ? '?' : ramp[level];
  if (ink == Ink::ascii || std::isnan(share)) return {c, c};
  // The gray steps of the 256-color palette are 232 (dark) to 255 (light).
  const int gray = 233 + static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * 22));
  return fmt::format("\x1b[48;5;{}m  \x1b[0m", gray);
}

std::string label(const std::vector<std::string>& labels, std::size_t i) { return i < labels.size() ? labels[i] : fmt::format("{}", i); }

std::size_t widest(const std::vector<std::string>& labels, std::size_t count) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < count; ++i) width = std::max(width, label(labels, i).size());
  return width;
}

Tensor one_head(const Tensor& weights, const HeatMapOptions& options) {
  const auto chosen = [&](const char* what, Index i, Index count) {
    if (i < 0 || i >= count) detail::raise<IndexError>("heat_map: no {} {} in weights {}", what, i, weights.shape());
    return i;
  };
  if (weights.dim() == 2) return weights;
  if (weights.dim() < 2 || weights.dim() > 4 || !options.head)
    detail::raise<ShapeError>("heat_map: wants the weights of one head, (Tq, Tk), or weights with heads and .head to choose one: shape {}",
                              weights.shape());
  const NoGrad off;
  const Tensor heads = weights.dim() == 4 ? select(weights, 0, chosen("batch entry", options.batch, weights.size(0))) : weights;
  return select(heads, 0, chosen("head", *options.head, heads.size(0)));
}

}  // namespace

Ink ink_for(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool plain = (no_color && *no_color) || (term && std::string_view(term) == "dumb") || !isatty(fileno(stream));
  return plain ? Ink::ascii : Ink::color;
}

std::string heat_map(const Tensor& all, const HeatMapOptions& options) {
  const Tensor weights = one_head(all, options);
  if (options.allowed.defined() && (options.allowed.shape() != weights.shape() || options.allowed.dtype() != boolean))
    detail::raise<ShapeError>("heat_map: allowed is {} {}, the weights {}", options.allowed.dtype(), options.allowed.shape(), weights.shape());
  const auto rows = static_cast<std::size_t>(weights.size(0)), columns = static_cast<std::size_t>(weights.size(1));
  const std::vector<double> w = weights.to_vector<double>();
  const std::vector<bool> allowed = options.allowed.defined() ? options.allowed.to_vector<bool>() : std::vector<bool>(w.size(), true);
  double largest = 0;
  for (double v : w)
    if (std::isfinite(v)) largest = std::max(largest, v);

  const std::size_t left = widest(options.queries, rows) + 2;
  const std::size_t cells = static_cast<std::size_t>(std::max<Index>(options.width - static_cast<Index>(left), 2)) / 2;
  const std::size_t shared = std::max<std::size_t>((columns + cells - 1) / cells, 1);  // keys in a cell
  std::string out;
  if (shared == 1) {
    const std::size_t height = widest(options.keys, columns);
    for (std::size_t line = 0; line < height; ++line) {
      std::string text(left, ' ');
      for (std::size_t j = 0; j < columns; ++j) {
        const std::string name = label(options.keys, j);
        text += line < name.size() ? name[line] : ' ';
        text += ' ';
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + '\n';
    }
  }
  for (std::size_t i = 0; i < rows; ++i) {
    out += fmt::format("{:>{}}  ", label(options.queries, i), left - 2);
    std::string text;
    for (std::size_t j = 0; j < columns; j += shared) {
      double value = 0;
      bool any = false;
      for (std::size_t s = j; s < std::min(j + shared, columns); ++s) {
        if (!allowed[i * columns + s]) continue;
        value = any ? std::max(value, w[i * columns + s]) : w[i * columns + s];
        if (std::isnan(w[i * columns + s])) value = w[i * columns + s];
        any = true;
      }
      text += any ? cell(largest > 0 ? value / largest : value, options.ink) : "  ";
    }
    if (options.ink == Ink::ascii) text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  }
  out += fmt::format("{:>{}}  0 ", "", left - 2);
  for (std::size_t level = 0; level < ramp.size(); ++level)
    out += cell(static_cast<double>(level) / static_cast<double>(ramp.size() - 1), options.ink);
  out += fmt::format(" {:.3g}", largest);
  if (options.allowed.defined()) out += ", blank: masked";
  if (shared > 1) out += fmt::format(", {} keys to a cell", shared);
  return out + '\n';
}

}  // namespace heed::nn
