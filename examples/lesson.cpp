// The run of a lesson that writes one attention head in NumPy: its shapes, weights and look-ahead mask, printed as there. With --npy, on the arrays
// that a NumPy user saved, held against that user's own output.
#include <fmt/format.h>
#include <heed/heed.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <limits>

using namespace heed;

namespace {

/// Floats as NumPy prints an array of them: 8 digits at most, with exponents for all or for none, in lines of 75 characters.
class NumpyPrinter {
 public:
  explicit NumpyPrinter(const Tensor& t) : shape_(t.shape()), values_(t.to_vector<double>()) {
    double least = HUGE_VAL, most = 0;
    for (double v : values_)
      if (v != 0) least = std::min(least, std::fabs(v)), most = std::max(most, std::fabs(v));
    exponents_ = most >= 1e8 || (most > 0 && (least < 1e-4 || most / least > 1000));
    for (double v : values_) {
      const std::string text = digits(v, 8);
      exponent_ = std::max(exponent_, text.size() - std::min(text.find('e'), text.size()));
      const std::size_t point = text.find('.'), end = text.find_last_not_of('0', text.find('e') - 1);
      decimals_ = std::max(decimals_, static_cast<int>(end - point));
      left_ = std::max(left_, point);
    }
  }
  std::string print() const {
    if (shape_.size() == 1) return row(0, values_.size(), 1);
    const auto columns = static_cast<std::size_t>(shape_[1]);
    std::string out = "[";
    for (std::size_t i = 0; i < values_.size(); i += columns) out += (i == 0 ? "" : "\n ") + row(i, i + columns, 2);
    return out + "]";
  }

 private:
  std::string digits(double v, int decimals) const {
    return exponents_ ? fmt::format("{:#.{}e}", v, decimals) : fmt::format("{:#.{}f}", v, decimals);
  }
  std::string number(double v) const {
    std::string text = digits(v, decimals_);
    if (exponents_) {  // all as long as the longest
      text.insert(text.find('e') + 2, exponent_ - (text.size() - text.find('e')), '0');
    } else {  // zeros at the end are blank
      const std::size_t end = text.find_last_not_of('0') + 1;
      text.replace(end, std::string::npos, text.size() - end, ' ');
    }
    return std::string(left_ - text.find('.'), ' ') + text;
  }
  std::string row(std::size_t begin, std::size_t end, std::size_t indent) const {
    std::string out = "[";
    std::size_t column = indent;
    for (std::size_t i = begin; i < end; ++i) {
      const std::string text = number(values_[i]);
      if (i > begin && column + 1 + text.size() > 75 - indent) {
        out += '\n' + std::string(indent, ' ');
        column = indent;
      } else if (i > begin) {
        out += ' ';
        ++column;
      }
      out += text;
      column += text.size();
    }
    return out + "]";
  }

  Dims shape_;
  std::vector<double> values_;
  bool exponents_ = false;
  int decimals_ = 0;
  std::size_t left_ = 0, exponent_ = 0;
};
std::string numpy(const Tensor& t) { return NumpyPrinter(t).print(); }

/// A single float as Python prints it.
std::string python(double v) {
  const std::string text = fmt::format("{}", v);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string python(const Dims& shape) {
  std::string out;
  for (Index size : shape) out += (out.empty() ? "(" : ", ") + std::to_string(size);
  return out + (shape.size() == 1 ? ",)" : ")");
}

void print_shapes(const Tensor& x, const Attention& result) {
  fmt::print("Input shape: {}\nOutput shape: {}\nAttention weights shape: {}\n", python(x.shape()), python(result.output.shape()),
             python(result.weights.shape()));
}

void run_lesson(const std::filesystem::path& save) {
  const NoGrad off;  // the lesson goes forward only
  const Index seq_len = 5, d_model = 128, d_head = 64;
  const Tensor x_input = randn({seq_len, d_model}, f64);
  nn::SingleHeadSelfAttention attention_head(d_model, d_head, nn::Init::lesson);
  nn::to(attention_head, f64);  // NumPy's precision; heed begins in f32
  const Attention result = attention_head(x_input);
  const Tensor &output = result.output, &weights = result.weights;

  print_shapes(x_input, result);
  fmt::print("\nFirst row of attention weights (sums to 1): {}\n", numpy(weights[0]));
  fmt::print("Sum of first row: {}\n", python(sum(weights[0]).item<double>()));

  const Tensor look_ahead_mask = tril(ones({seq_len, seq_len}, f64));
  fmt::print("\nLook-ahead mask:\n {}\n", numpy(look_ahead_mask));
  const Tensor weights_masked = attention_head(x_input, Mask::keep(look_ahead_mask)).weights;
  fmt::print("\nMasked attention weights (first 3x3):\n {}\n", numpy(slice(slice(weights_masked, 0, 0, 3), 1, 0, 3)));

  if (save.empty()) return;
  std::filesystem::create_directories(save);
  const std::map<std::string, Tensor> arrays = {
      {"x", x_input},       {"W_q", attention_head.W_q}, {"W_k", attention_head.W_k}, {"W_v", attention_head.W_v},
      {"weights", weights}, {"output", output}};
  for (const auto& [name, array] : arrays) save_npy(save / (name + ".npy"), array);
  fmt::print("\nSaved to {}: W_k.npy, W_q.npy, W_v.npy, output.npy, weights.npy, x.npy\n", save.string());
}

struct Difference {
  double largest = 0;
  std::string where;
};

Difference largest_difference(const Tensor& here, const Tensor& there) {
  const std::vector<double> a = here.to_vector<double>(), b = there.to_vector<double>();
  Difference out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(a[i] - b[i]);
    if (!(d > out.largest) && !std::isnan(d)) continue;
    const auto columns = static_cast<std::size_t>(here.size(1));
    out = {d, fmt::format("at ({}, {}): {:.6g} there, {:.6g} here", i / columns, i % columns, b[i], a[i])};
    if (std::isnan(d)) return out;
  }
  return out;
}

/// What a head may have been meant to compute.
struct Reading {
  std::string name;
  bool right;
  AttentionOptions options;
};

bool compare(const std::filesystem::path& folder) {
  const auto load = [&](const char* name) { return load_npy(folder / fmt::format("{}.npy", name)); };
  const auto present = [&](const char* name) { return std::filesystem::exists(folder / fmt::format("{}.npy", name)); };
  std::string missing;
  for (const char* name : {"x", "W_q", "W_k", "W_v", "output"})
    if (!present(name)) missing += fmt::format("{}{}.npy", missing.empty() ? "" : ", ", name);
  if (!missing.empty()) throw Error(fmt::format("--npy: {} lacks {}", folder.string(), missing));

  const NoGrad off;
  const Tensor x = load("x").to(f64), W_q = load("W_q").to(f64), W_k = load("W_k").to(f64), W_v = load("W_v").to(f64), theirs = load("output");
  for (const auto& [name, t] : std::initializer_list<std::pair<const char*, const Tensor&>>{{"x", x}, {"W_q", W_q}, {"W_k", W_k}, {"W_v", W_v}})
    if (t.dim() != 2) throw Error(fmt::format("--npy: {}.npy has shape {}: wants two dims", name, python(t.shape())));
  nn::SingleHeadSelfAttention head(0, 0);
  head.W_q = W_q, head.W_k = W_k, head.W_v = W_v;

  const double d_k = static_cast<double>(W_q.size(1)), d_model = static_cast<double>(x.size(1));
  std::vector<Reading> readings;
  if (present("mask")) {
    readings.push_back({"with mask.npy", true, {.mask = Mask::keep(load("mask"))}});
  } else {
    readings.push_back({"without mask", true, {}});
    readings.push_back({"with the look-ahead mask", true, {.mask = Mask::causal()}});
  }
  for (std::size_t i = 0, right = readings.size(); i < right; ++i) {
    const Reading r = readings[i];  // what goes wrong most often
    readings.push_back({"scores that are not scaled, " + r.name, false, {.mask = r.options.mask, .scale = 1.}});
    readings.push_back({"scores divided by d_k instead of its square root, " + r.name, false, {.mask = r.options.mask, .scale = 1 / d_k}});
    readings.push_back({"scores divided by sqrt(d_model), " + r.name, false, {.mask = r.options.mask, .scale = 1 / std::sqrt(d_model)}});
  }

  print_shapes(x, head(x, readings[0].options));
  std::optional<Difference> nearest;
  const Reading* reading = nullptr;
  Attention ours;
  for (const Reading& r : readings) {
    const Attention result = head(x, r.options);
    if (theirs.shape() != result.output.shape())
      throw Error(fmt::format("--npy: output.npy has shape {}, here it is {}", python(theirs.shape()), python(result.output.shape())));
    const Difference d = largest_difference(result.output, theirs);
    if (nearest && !(d.largest < nearest->largest)) continue;
    nearest = d, reading = &r, ours = result;
  }

  // To first order, rounding moves a score by a few units in the last place of |q| |k| / sqrt(d_k), the weights by as much in relation, and the
  // output by that times the largest value.
  const auto longest = [](const Tensor& t) { return std::sqrt(max(sum(square(t), {-1})).item<double>()); };
  const double unit = theirs.dtype() == f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const double scores = longest(matmul(x, W_q)) * longest(matmul(x, W_k)) / std::sqrt(d_k), rounding = 4 * unit * (4 + scores);
  const double allowed = rounding * max(abs(matmul(x, W_v))).item<double>();
  fmt::print("\noutput.npy, {}: largest difference {:.2g}", reading->name, nearest->largest);
  bool same = reading->right && nearest->largest <= allowed;
  if (same)
    fmt::print(", rounding of {} (up to {:.2g})\n", theirs.dtype() == f32 ? "f32" : "f64", allowed);
  else if (!reading->right && nearest->largest <= allowed)
    fmt::print("\nThis is NOT the lesson's head: it agrees with {}.\n", reading->name);
  else
    fmt::print(" {}\nThis is NOT rounding, which explains up to {:.2g}.\n", nearest->where, allowed);

  if (present("weights")) {
    const Tensor weights = load("weights");
    if (weights.shape() != ours.weights.shape())
      throw Error(fmt::format("--npy: weights.npy has shape {}, here it is {}", python(weights.shape()), python(ours.weights.shape())));
    const Difference d = largest_difference(ours.weights, weights);
    const bool alike = d.largest <= rounding;
    fmt::print("weights.npy: largest difference {:.2g}{}\n", d.largest, alike ? ", rounding" : " " + d.where + ": NOT rounding");
    same = same && alike;
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1;
  std::string npy, save;
  CLI::App app("The run of the lesson that writes one attention head in NumPy, in f64.");
  app.add_option("--seed", seed, "of weights and input")->capture_default_str();
  auto* from = app.add_option("--npy", npy,
                              "take W_q.npy, W_k.npy, W_v.npy and x.npy from this folder (mask.npy too, where there is one) and compare with\n"
                              "output.npy, and weights.npy where there is one; exit status 1 where the difference is not rounding")
                   ->check(CLI::ExistingDirectory);
  app.add_option("--save", save, "write the arrays to this folder, for NumPy")->excludes(from);
  CLI11_PARSE(app, argc, argv);
  try {
    manual_seed(seed);
    if (!npy.empty()) return compare(npy) ? 0 : 1;
    run_lesson(save);
  } catch (const std::exception& e) {
    fmt::print(stderr, "lesson: {}\n", e.what());
    return 1;
  }
}
