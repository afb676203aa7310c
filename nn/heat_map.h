#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "../tensor/tensor.h"

namespace heed::nn {

/// What a terminal may be sent.
enum class Ink {
  ascii,  ///< characters of growing darkness
  color   ///< the 256 colors of ANSI escapes
};

/// Color for terminals, ASCII for files and pipes and where the environment sets NO_COLOR (no-color.org) or TERM=dumb.
Ink ink_for(std::FILE* stream);

/// How weights are drawn.
struct HeatMapOptions {
  std::vector<std::string> queries = {};  ///< a label for each row; numbers where absent
  std::vector<std::string> keys = {};     ///< a label for each column, read downwards; numbers where absent
  Tensor allowed = {};                    ///< boolean (Tq, Tk): cells where it is false are left blank, which tells masked from zero
  Ink ink = Ink::ascii;                   ///< `ink_for(stdout)` asks the terminal
  Index width = 80;                ///< columns of the terminal; neighboring keys share a cell, which shows their largest weight, where there are more
  std::optional<Index> head = {};  ///< which head of weights (H, Tq, Tk) or (B, H, Tq, Tk)
  Index batch = 0;                 ///< which entry of weights (B, H, Tq, Tk)
};

/// Attention weights (Tq, Tk) as text: a row of cells for each query, darker for larger weights, from 0 to the largest weight; a scale below. Of
/// weights with heads, the one that `head` and `batch` choose: IndexError for one that is not there. ShapeError for other ranks.
std::string heat_map(const Tensor& weights, const HeatMapOptions& = {});

}  // namespace heed::nn
