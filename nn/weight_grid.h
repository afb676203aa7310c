#pragma once

// Private: what the pictures of attention weights have in common, in text and in SVG.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../tensor/tensor.h"

namespace heed::detail {

/// The weights of one head, row-major.
struct WeightGrid {
  std::size_t rows = 0, columns = 0;
  std::vector<double> weights;
  std::vector<bool> allowed;
  double largest = 0;  ///< of those that are allowed and finite

  /// The largest weight of queries [i, i + height) and keys [j, j + width), NaN where one is NaN; nothing where all are masked.
  std::optional<double> cell(std::size_t i, std::size_t j, std::size_t height, std::size_t width) const;
  /// From 0 to 1: the weight's place in the scale from 0 to `largest`.
  double share(double weight) const;
};

/// Of weights (Tq, Tk), or of the head that is chosen of (H, Tq, Tk) and (B, H, Tq, Tk). `allowed` is boolean (Tq, Tk), or undefined where everything
/// is. ShapeError, IndexError; `op` begins their texts.
WeightGrid weight_grid(const char* op, const Tensor& weights, const Tensor& allowed, std::optional<Index> head, Index batch);

/// `count` labels, numbers where none are given: valid UTF-8 without control characters ("\n", "\x1b" instead), cut to `longest` characters.
std::vector<std::string> labels(const std::vector<std::string>& given, std::size_t count, std::size_t longest);

/// The characters of a text in UTF-8; a byte that belongs to none stands alone.
std::vector<std::string_view> characters(std::string_view);

/// Number of characters of the longest.
std::size_t widest(const std::vector<std::string>&);

}  // namespace heed::detail
