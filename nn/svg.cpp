#include "svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>

#include "../tensor/raise.h"
#include "weight_grid.h"

namespace heed::nn {
namespace {

using detail::characters, detail::widest;

constexpr std::size_t most_cells = 128;  // of a heat map's side
constexpr std::size_t colors = 6;

// Each rule twice: a picture keeps its own paper, so that it can be read on any page, and turns dark with the reader's system.
constexpr const char* style =
    "<style>\n"
    "text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#3d4752}\n"
    ".title{font:600 14px system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#1b222a}\n"
    ".paper{fill:#fff}.zero{fill:#e9eef4}.weight{fill:#1d4ed8}.stop{stop-color:#1d4ed8}.nan{fill:#dc2626}.hatch{stroke:#c4ccd6}.grid{stroke:#e3e8ee}."
    "axis{stroke:#7b8794}\n"
    ".curve{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}.again{stroke-dasharray:6 4}\n"
    ".c0{stroke:#1d4ed8}.c1{stroke:#d97706}.c2{stroke:#059669}.c3{stroke:#db2777}.c4{stroke:#7c3aed}.c5{stroke:#64748b}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#b4bfca}.title{fill:#eef2f6}\n"
    ".paper{fill:#11161d}.zero{fill:#1f2833}.weight{fill:#8ec5ff}.stop{stop-color:#8ec5ff}.nan{fill:#f87171}.hatch{stroke:#3c4856}.grid{stroke:#"
    "232c37}.axis{stroke:#6b7887}\n"
    ".c0{stroke:#60a5fa}.c1{stroke:#fbbf24}.c2{stroke:#34d399}.c3{stroke:#f472b6}.c4{stroke:#a78bfa}.c5{stroke:#94a3b8}\n"
    "}\n</style>\n";

/// Pixels that so many characters of a label take, at most.
double wide_as(std::size_t count) { return std::ceil(6.7 * static_cast<double>(count)); }

/// Text as XML: at the ends of a label a space is drawn, since it would be lost.
std::string xml(const std::string& label, bool ends = false) {
  static const std::map<std::string_view, std::string_view> names = {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}};
  const std::string text = detail::labels({label}, 1, label.size() * 4 + 1)[0];
  const std::size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  std::string out;
  std::size_t at = 0;
  for (std::string_view c : characters(text)) {
    const auto name = names.find(c);
    const bool lost = ends && c == " " && (first == std::string::npos || at < first || at > last);
    out += lost ? "\u2423" : name != names.end() ? name->second : c;
    at += c.size();
  }
  return out;
}

/// A coordinate: two decimals at most.
std::string px(double v) {
  std::string text = fmt::format("{:.2f}", v);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

class Picture {
 public:
  Picture(double width, double height, const std::string& title) {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n", px(width), px(height));
    if (!title.empty()) put("<title>{}</title>\n", xml(title));
    put("{}<rect class=\"paper\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n", style, px(width), px(height));
    if (!title.empty()) put("<text class=\"title\" x=\"16\" y=\"25\">{}</text>\n", xml(title));
  }

  template <class... A>
  void put(fmt::format_string<A...> text, A&&... args) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<A>(args)...);
  }
  /// `anchor` is start, middle or end; `turn` is in degrees.
  void label(double x, double y, const char* anchor, const std::string& text, int turn = 0) {
    if (text.empty()) return;
    const std::string turned = turn == 0 ? std::string() : fmt::format(" transform=\"rotate({} {} {})\"", turn, px(x), px(y));
    put("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", px(x), px(y), anchor, turned, xml(text, true));
  }
  void line(const char* kind, double x1, double y1, double x2, double y2) {
    put("<path class=\"{}\" d=\"M{} {}L{} {}\"/>\n", kind, px(x1), px(y1), px(x2), px(y2));
  }
  std::string finish() && { return std::move(out_) + "</svg>\n"; }

 private:
  std::string out_;
};

/// An axis from round number to round number.
struct Axis {
  double low = 0, step = 1, length, start;  // pixels from `start` on, to the left where length is negative
  int steps = 1;

  Axis(double least, double most, int wanted, double begin, double pixels) : length(pixels), start(begin) {
    if (!(least <= most)) least = 0, most = 1;
    const double size = std::max(std::fabs(least), std::fabs(most));
    const double range = std::max({most - least, size * 1e-9, size == 0 ? 1.0 : 1e-300});  // of less, a step may round to zero
    const double power = std::pow(10, std::floor(std::log10(range / wanted)));
    for (double round : {1., 2., 5., 10.})
      if (step = round * power; range / step <= wanted) break;
    low = std::floor(least / step + 1e-9) * step;
    steps = std::max(static_cast<int>(std::ceil((most - low) / step - 1e-9)), 1);
  }
  double tick(int i) const { return (std::round(low / step) + i) * step; }
  double at(double v) const { return start + length * (v - low) / (step * steps); }
};

bool drawable(double v) { return std::fabs(v) < 1e150; }  // differences of two of these are finite

/// The points to draw: all of them, or of each column of pixels the first, lowest, highest and last.
std::vector<std::size_t> chosen(const SvgCurve& c, const Axis& x) {
  const std::size_t n = c.x.size();
  std::vector<std::size_t> out;
  if (n <= 4 * static_cast<std::size_t>(x.length)) {
    for (std::size_t i = 0; i < n; ++i) out.push_back(i);
    return out;
  }
  const auto column = [&](std::size_t i) { return drawable(c.x[i]) && drawable(c.y[i]) ? std::floor(x.at(c.x[i])) : -1; };
  for (std::size_t begin = 0, end = 0; begin < n; begin = end) {
    std::array<std::size_t, 4> keep = {begin, begin, begin, begin};
    for (end = begin; end < n && column(end) == column(begin); ++end) {
      if (c.y[end] < c.y[keep[1]]) keep[1] = end;
      if (c.y[end] > c.y[keep[2]]) keep[2] = end;
      keep[3] = end;
    }
    std::sort(keep.begin(), keep.end());
    out.insert(out.end(), keep.begin(), std::unique(keep.begin(), keep.end()));
  }
  return out;
}

std::string path(const SvgCurve& c, const Axis& x, const Axis& y) {
  std::string d;
  bool drawing = false;
  for (std::size_t i : chosen(c, x)) {
    const bool there = drawable(c.x[i]) && drawable(c.y[i]);
    // A point alone is a line of no length, which round ends make a dot.
    if (there) d += fmt::format("{}{} {}{}", drawing ? "L" : "M", px(x.at(c.x[i])), px(y.at(c.y[i])), drawing ? "" : "h0");
    drawing = there;
  }
  return d;
}

}  // namespace

std::string svg_curves(const std::vector<SvgCurve>& curves, const SvgCurvesOptions& options) {
  if (options.width < 200 || options.height < 120 || options.width > 10000 || options.height > 10000)
    detail::raise<Error>("svg_curves: wants from 200 x 120 to 10000 x 10000 pixels: {} x {}", options.width, options.height);
  std::array<double, 4> range = {HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL};
  for (const SvgCurve& c : curves) {
    if (c.x.size() != c.y.size()) detail::raise<Error>("svg_curves: curve {} has {} x and {} y", c.name, c.x.size(), c.y.size());
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      if (!drawable(c.x[i]) || !drawable(c.y[i])) continue;
      range = {std::min(range[0], c.x[i]), std::max(range[1], c.x[i]), std::min(range[2], c.y[i]), std::max(range[3], c.y[i])};
    }
  }
  const auto width = static_cast<double>(options.width), height = static_cast<double>(options.height);
  const double left = options.y_label.empty() ? 64 : 84, right = width - 24, bottom = height - (options.x_label.empty() ? 32 : 50);

  // The legend takes as many lines as it needs, but leaves half of the picture.
  struct Entry {
    std::string name;
    double x, y;
  };
  std::vector<Entry> legend(curves.size());
  double next = left, line = options.title.empty() ? 20 : 44;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].name.empty()) continue;
    const std::string name = detail::labels({curves[i].name}, 1, static_cast<std::size_t>((right - left - 26) / wide_as(1)))[0];
    const double wide = 26 + wide_as(characters(name).size());
    if (next > left && next + wide > right) next = left, line += 18;
    if (line < height / 2) legend[i] = {name, next, line};
    next += wide + 22;
  }
  const double top = std::min(next > left ? line + 18 : line - 4, height / 2);
  const Axis x(range[0], range[1], static_cast<int>(width / 90), left, right - left);
  const Axis y(range[2], range[3], static_cast<int>(height / 55), bottom, top - bottom);

  Picture picture(width, height, options.title);
  for (int i = 0; i <= y.steps; ++i) {
    const double at = y.at(y.tick(i));
    picture.line(i == 0 ? "axis" : "grid", left, at, right, at);
    picture.label(left - 8, at + 4, "end", fmt::format("{:.6g}", y.tick(i)));
  }
  for (int i = 0; i <= x.steps; ++i) {
    const double at = x.at(x.tick(i));
    picture.line("axis", at, bottom, at, bottom + 4);
    picture.label(at, bottom + 18, "middle", fmt::format("{:.6g}", x.tick(i)));
  }
  picture.label((left + right) / 2, height - 12, "middle", options.x_label);
  picture.label(20, (top + bottom) / 2, "middle", options.y_label, -90);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::string kind = fmt::format("curve c{}{}", i % colors, i / colors % 2 == 1 ? " again" : "");
    picture.put("<path class=\"{}\" d=\"{}\"/>\n", kind, path(curves[i], x, y));
    if (legend[i].name.empty()) continue;
    picture.line(kind.c_str(), legend[i].x, legend[i].y, legend[i].x + 20, legend[i].y);
    picture.label(legend[i].x + 26, legend[i].y + 4, "start", legend[i].name);
  }
  return std::move(picture).finish();
}

std::string svg_heat_map(const Tensor& all, const SvgHeatMapOptions& options) {
  const detail::WeightGrid grid = detail::weight_grid("svg_heat_map", all, options.allowed, options.head, options.batch);
  const auto shared = [](std::size_t n) { return std::max<std::size_t>((n + most_cells - 1) / most_cells, 1); };
  const std::size_t high = shared(grid.rows), wide = shared(grid.columns);  // queries and keys to a cell
  const std::size_t rows = (grid.rows + high - 1) / high, columns = (grid.columns + wide - 1) / wide;
  const std::vector<std::string> queries = detail::labels(options.queries, grid.rows, 32), keys = detail::labels(options.keys, grid.columns, 32);
  const double cell = std::clamp(std::floor(560 / static_cast<double>(std::max<std::size_t>({rows, columns, 1}))), 5.0, 30.0);
  const bool upright = wide_as(widest(keys)) <= cell;
  const double left = 40 + wide_as(widest(queries));
  const double top = (options.title.empty() ? 34 : 58) + (upright ? 16 : 8 + wide_as(widest(keys)));
  const double right = left + cell * static_cast<double>(columns), bottom = top + cell * static_cast<double>(rows);
  const std::string note = high > 1 || wide > 1 ? fmt::format("a cell shows the largest of {} x {}", high, wide) : "";
  const double width = std::max({right + 92, 32 + 9 * static_cast<double>(characters(options.title).size()), left + wide_as(note.size())});

  Picture picture(width, std::max(bottom, top + 110) + (note.empty() ? 16 : 34), options.title);
  picture.put(
      "<defs><pattern id=\"masked\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
      "<path class=\"hatch\" d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\"/></pattern></defs>\n");
  // Masked cells show the paper's hatching; a cell that is allowed covers it and is 0 until a weight is laid over it.
  if (options.allowed.defined())
    picture.put("<path fill=\"url(#masked)\" d=\"M{} {}H{}V{}H{}z\"/>\n", px(left), px(top), px(right - 1), px(bottom - 1), px(left));
  std::string zeros, weights;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      const std::optional<double> value = grid.cell(i * high, j * wide, high, wide);
      if (!value) continue;
      const double x = left + cell * static_cast<double>(j), y = top + cell * static_cast<double>(i);
      zeros += fmt::format("M{} {}h{}v{}h-{}z", px(x), px(y), px(cell - 1), px(cell - 1), px(cell - 1));
      const bool finite = std::isfinite(*value);
      const std::string shade = finite ? fmt::format("{:.3f}", grid.share(*value)) : "1";
      if (shade == "0.000") continue;
      weights += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"{}\"><title>{}, {}: {:.4g}</title></rect>\n",
          finite ? "weight" : "nan", px(x), px(y), px(cell - 1), px(cell - 1), shade, xml(queries[i * high]), xml(keys[j * wide]), *value);
    }
  picture.put("<path class=\"zero\" d=\"{}\"/>\n{}", zeros, weights);

  const auto every = static_cast<std::size_t>(std::ceil(12 / cell));  // labels where there is room for them
  for (std::size_t i = 0; i < rows; i += every) picture.label(left - 8, top + cell * (static_cast<double>(i) + .5) + 3.5, "end", queries[i * high]);
  for (std::size_t j = 0; j < columns; j += every) {
    const double x = left + cell * (static_cast<double>(j) + .5);
    if (upright)
      picture.label(x - .5, top - 8, "middle", keys[j * wide]);
    else
      picture.label(x + 3.5, top - 8, "start", keys[j * wide], -90);
  }
  picture.label(left, options.title.empty() ? 22 : 46, "start", "key");
  picture.label(20, top, "end", "query", -90);

  const double bar = std::clamp(bottom - top - 32, 70.0, 200.0), side = right + 18;
  picture.put(
      "<defs><linearGradient id=\"scale\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">"
      "<stop class=\"stop\" stop-opacity=\"0\"/><stop class=\"stop\" offset=\"1\"/></linearGradient></defs>\n");
  for (const char* fill : {"class=\"zero\"", "fill=\"url(#scale)\""})
    picture.put("<path {} d=\"M{} {}h14v{}h-14z\"/>\n", fill, px(side), px(top), px(bar));
  for (double share : {0., .5, 1.}) picture.label(side + 20, top + bar * (1 - share) + 4, "start", fmt::format("{:.3g}", share * grid.largest));
  if (options.allowed.defined()) {
    picture.put("<path fill=\"url(#masked)\" d=\"M{} {}h14v14h-14z\"/>\n", px(side), px(top + bar + 16));
    picture.label(side + 20, top + bar + 27, "start", "masked");
  }
  picture.label(left, bottom + 20, "start", note);
  return std::move(picture).finish();
}

}  // namespace heed::nn
