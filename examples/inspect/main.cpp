// Shows what is in a .safetensors or .npy file: names, types, shapes, and whether the numbers look healthy.

#include <fmt/format.h>
#include <heed/heed.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <limits>

using namespace heed;

namespace {

/// A text from a file on a terminal: nothing in it moves the cursor.
std::string plain(const std::string& text, std::size_t at_most = 80) {
  std::string out;
  for (char c : text.substr(0, at_most)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < ' ' || byte == 127 ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text.size() > at_most ? out + "..." : out;
}

template <class Sizes>
std::string shape_text(const Sizes& shape) {
  std::string out;
  for (const auto size : shape) out += fmt::format("{}{}", out.empty() ? "" : ", ", size);
  return "(" + out + (shape.size() == 1 ? ",)" : ")");
}

/// Of the finite elements; the others are counted.
struct Statistics {
  explicit Statistics(const Tensor& t) {
    const std::vector<double> values = t.to_vector<double>();
    double sum = 0;
    for (double v : values) {
      nans += std::isnan(v);
      infinities += std::isinf(v);
      if (!std::isfinite(v)) continue;
      ++finite;
      sum += v;
      low = std::min(low, v), high = std::max(high, v);
    }
    mean = sum / static_cast<double>(finite);
    double squares = 0;
    for (double v : values)
      if (std::isfinite(v)) squares += (v - mean) * (v - mean);
    deviation = std::sqrt(squares / static_cast<double>(finite));
  }
  std::string number(double v) const { return finite == 0 ? "-" : fmt::format("{:.5g}", v); }

  Index finite = 0, nans = 0, infinities = 0;
  double low = std::numeric_limits<double>::infinity(), high = -low, mean = 0, deviation = 0;
};

struct Row {
  std::string name, dtype, shape;
  Tensor tensor;
};

void print_table(const std::vector<Row>& rows) {
  std::size_t name_width = 4, shape_width = 5;  // "name", "shape"
  for (const Row& r : rows) name_width = std::max(name_width, r.name.size()), shape_width = std::max(shape_width, r.shape.size());
  fmt::print("{:<{}}  {:<5}  {:<{}}  {:>11}  {:>11}  {:>11}  {:>11}  {:>6}  {:>6}\n", "name", name_width, "dtype", "shape", shape_width, "min", "max",
             "mean", "std", "NaN", "inf");
  Index elements = 0, nans = 0, infinities = 0;
  for (const Row& r : rows) {
    const Statistics s(r.tensor);
    fmt::print("{:<{}}  {:<5}  {:<{}}  {:>11}  {:>11}  {:>11}  {:>11}  {:>6}  {:>6}\n", r.name, name_width, r.dtype, r.shape, shape_width,
               s.number(s.low), s.number(s.high), s.number(s.mean), s.number(s.deviation), s.nans, s.infinities);
    elements += r.tensor.numel(), nans += s.nans, infinities += s.infinities;
  }
  fmt::print("{} tensors, {} elements, {} NaN, {} infinite\n", rows.size(), elements, nans, infinities);
}

void inspect_safetensors(const std::string& path, bool whole_strings) {
  const auto metadata = safetensors_metadata(path);
  for (const auto& [key, value] : metadata)
    fmt::print("{}: {}\n", plain(key), plain(value, whole_strings ? std::numeric_limits<std::size_t>::max() : 80));
  if (!metadata.empty()) fmt::print("\n");
  const auto entries = detail::list_safetensors(path);
  std::map<std::string, Tensor> tensors;
  try {
    tensors = load_safetensors(path);
  } catch (const Error&) {  // what the header says is worth showing all the same
    for (const auto& e : entries) fmt::print("{}  {}  {}\n", plain(e.name, 200), plain(e.dtype), shape_text(e.shape));
    throw;
  }
  std::vector<Row> rows;
  for (const auto& e : entries) rows.push_back({plain(e.name, 200), e.dtype, shape_text(e.shape), tensors.at(e.name)});
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
  print_table(rows);
}

void inspect_npy(const std::string& path) {
  const Tensor t = load_npy(path);
  constexpr const char* dtypes[] = {"F32", "F64", "I64", "BOOL"};
  print_table({{plain(path, 200), dtypes[static_cast<int>(t.dtype())], shape_text(t.shape()), t}});
}

bool is_npy(const std::string& path) {
  char magic[6] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string(magic, sizeof magic) == "\x93NUMPY";
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  bool metadata = false;
  CLI::App app("Shows the tensors in a .safetensors or .npy file: types and shapes as stored (of .npy as read), smallest, largest and mean number.");
  app.add_option("file", path, "the file")->required();
  app.add_flag("--metadata", metadata, "show strings of the metadata whole");
  CLI11_PARSE(app, argc, argv);
  try {
    is_npy(path) ? inspect_npy(path) : inspect_safetensors(path, metadata);
    return 0;
  } catch (const std::exception& e) {
    std::fflush(stdout);
    fmt::print(stderr, "inspect: {}\n", plain(e.what(), 1000));
    return 1;
  }
}
