#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "../tensor/tensor.h"

namespace heed::nn {

/// What a terminal may be sent.
enum class Ink { ascii, color };

/// Color for terminals, ASCII for files and pipes and where the environment sets NO_COLOR (no-color.org) or TERM=dumb.
Ink ink_for(std::FILE* stream);

struct HeatMapOptions {
  std::vector<std::string> queries = {};  ///< a label for each row; numbers where absent
  std::vector<std::string> keys = {};     ///< a label for each column, read downwards; numbers where absent
  Tensor allowed = {};                    ///< boolean (Tq, Tk): cells where it is false are left blank, which tells masked from zero
  Ink ink = Ink::ascii;
  Index width = 80;  ///< columns of the terminal; neighboring keys share a cell, which shows their largest weight, where there are more
};

/// Attention weights (Tq, Tk) as text: a row of cells for each query, darker for larger weights, from 0 to the largest weight; a scale below. ShapeError for other ranks.
std::string heat_map(const Tensor& weights, const HeatMapOptions& = {});

}  // namespace heed::nn
