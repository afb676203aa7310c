#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../tensor/tensor.h"

// Pictures as SVG: text to write to a file, show in a browser or put into a document. The same numbers give the same bytes. Colors follow the
// reader's light or dark mode. Labels are UTF-8; what XML cannot hold is shown as "\x1b".

namespace heed::nn {

/// A line: y over x. A point that is not finite leaves a gap.
struct SvgCurve {
  std::string name = {};       ///< in the legend; absent from it when empty
  std::vector<double> x = {};  ///< across
  std::vector<double> y = {};  ///< upwards, as many as x
};

/// What stands around curves.
struct SvgCurvesOptions {
  std::string title = {};    ///< above; none when empty
  std::string x_label = {};  ///< below the axis
  std::string y_label = {};  ///< beside the axis
  Index width = 720;         ///< pixels, at least 200
  Index height = 360;        ///< pixels, at least 120
};

/// Curves over common axes, each in a color of its own. Of a curve with more points than the picture has columns, every column shows the lowest and
/// the highest. Without points, empty axes. Error for a curve whose x and y are not equally many, and for a picture below that size or above 10000
/// pixels.
std::string svg_curves(const std::vector<SvgCurve>&, const SvgCurvesOptions& = {});

/// How weights are drawn.
struct SvgHeatMapOptions {
  std::string title = {};                 ///< above; none when empty
  std::vector<std::string> queries = {};  ///< a label for each row; numbers where absent
  std::vector<std::string> keys = {};     ///< a label for each column; numbers where absent
  Tensor allowed = {};                    ///< boolean (Tq, Tk): cells where it is false are hatched, which tells masked from zero
  std::optional<Index> head = {};         ///< which head of weights (H, Tq, Tk) or (B, H, Tq, Tk)
  Index batch = 0;                        ///< which entry of weights (B, H, Tq, Tk)
};

/// Attention weights (Tq, Tk): a row of cells for each query, from 0 to the largest weight, with a scale. A cell tells its weight when pointed at;
/// above 128 queries or keys, neighbors share a cell, which shows their largest weight. IndexError and ShapeError as `heat_map`.
std::string svg_heat_map(const Tensor& weights, const SvgHeatMapOptions& = {});

}  // namespace heed::nn
