#pragma once

#include <string>
#include <utility>
#include <vector>

/// Made where it is not there. An exception that names --pictures where that is not possible.
void make_folder(const std::string& folder);
void write_picture(const std::string& folder, const std::string& name, const std::string& svg);

/// A value at every training step, and what it is to be compared with: levels, each with its name.
std::string draw_curve(const std::string& title, const std::string& unit, const std::pair<std::string, std::vector<double>>& curve,
                       const std::vector<std::pair<std::string, double>>& levels);
