#include "pictures.h"

#include <fmt/format.h>
#include <heed/nn/svg.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace fs = std::filesystem;

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) throw std::runtime_error(fmt::format("--pictures: cannot make the folder {}: {}", folder, error.message()));
}

void write_picture(const std::string& folder, const std::string& name, const std::string& svg) {
  const fs::path path = fs::path(folder) / name;
  std::ofstream out(path, std::ios::binary);
  out << svg << std::flush;
  if (!out) throw std::runtime_error(fmt::format("--pictures: cannot write {}", path.string()));
}

std::string draw_curve(const std::string& title, const std::string& unit, const std::pair<std::string, std::vector<double>>& curve,
                       const std::vector<std::pair<std::string, double>>& levels) {
  const auto steps = static_cast<double>(curve.second.size());
  std::vector<heed::nn::SvgCurve> curves = {{.name = curve.first, .y = curve.second}};
  for (double step = 1; step <= steps; ++step) curves[0].x.push_back(step);
  for (const auto& [name, level] : levels) curves.push_back({name, {1, steps}, {level, level}});
  return heed::nn::svg_curves(curves, {.title = title, .x_label = "step", .y_label = unit});
}
