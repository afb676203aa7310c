// The run of a lesson that writes one attention head in NumPy: its shapes, weights and look-ahead mask, printed as there. With --npy, on the arrays
// that a NumPy user saved, held against that user's own output.
#include <fmt/format.h>
#include <heed/heed.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <tuple>

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

/// For people: NaN has no sign here.
std::string number(double v, int digits = 6) { return std::isnan(v) ? "nan" : fmt::format("{:.{}g}", v, digits); }

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

/// What comes from NumPy, in f64.
struct Arrays {
  Tensor x, W_q, W_k, W_v, output, weights, mask;  // the last two may be undefined
  bool single = false;                             // some of them are f32
  std::string precision;                           // of the coarsest, for people
};

Arrays load_arrays(const std::filesystem::path& folder) {
  Arrays a;
  const std::initializer_list<std::pair<const char*, Tensor Arrays::*>> names = {
      {"x", &Arrays::x},           {"W_q", &Arrays::W_q},         {"W_k", &Arrays::W_k},  {"W_v", &Arrays::W_v},
      {"output", &Arrays::output}, {"weights", &Arrays::weights}, {"mask", &Arrays::mask}};
  const auto file = [&](const std::string& name) { return folder / (name + ".npy"); };
  std::string missing, singles;
  for (const auto& [name, member] : names)
    if (member != &Arrays::weights && member != &Arrays::mask && !std::filesystem::exists(file(name)))
      missing += fmt::format("{}{}.npy", missing.empty() ? "" : ", ", name);
  if (!missing.empty()) throw Error(fmt::format("--npy: {} lacks {}", folder.string(), missing));

  bool doubles = false;
  for (const auto& [name, member] : names) {
    if (!std::filesystem::exists(file(name))) continue;
    const Tensor t = load_npy(file(name));
    if (t.dim() != 2) throw Error(fmt::format("--npy: {}.npy has shape {}: wants two dims", name, python(t.shape())));
    a.*member = t.to(f64);
    if (member == &Arrays::mask) continue;
    std::ifstream header(file(name), std::ios::binary);
    std::string start(128, ' ');
    header.read(start.data(), 128);
    if (start.find("f2'") != std::string::npos)
      throw Error(fmt::format("--npy: {}.npy is float16, whose rounding hides all that could be wrong: compute in float32 or float64", name));
    if (t.dtype() == f32)
      singles += fmt::format("{}{}", singles.empty() ? "" : ", ", name);
    else
      doubles = true;
  }
  a.single = !singles.empty();
  a.precision = !a.single ? "f64" : !doubles ? "f32" : fmt::format("f32 ({} {} f32)", singles, singles.find(',') == std::string::npos ? "is" : "are");

  const Index T = a.x.size(0), d_model = a.x.size(1);
  for (const auto& [name, W] : std::initializer_list<std::pair<const char*, const Tensor&>>{{"W_q", a.W_q}, {"W_k", a.W_k}, {"W_v", a.W_v}})
    if (W.size(0) != d_model)
      throw Error(fmt::format("--npy: {}.npy has shape {}: wants (d_model, d_head), and x.npy has d_model {}{}", name, python(W.shape()), d_model,
                              W.size(1) == d_model ? fmt::format(": it is transposed, save {}.T", name) : ""));
  const auto must_have = [](const char* name, const Tensor& t, const Dims& shape) {
    if (t.defined() && t.shape() != shape)
      throw Error(fmt::format("--npy: {}.npy has shape {}, here it is {}", name, python(t.shape()), python(shape)));
  };
  must_have("output", a.output, {T, a.W_v.size(1)});
  must_have("weights", a.weights, {T, T});
  if (!a.mask.defined()) return a;
  if (a.mask.size(0) == 1) a.mask = expand(a.mask, {T, a.mask.size(1)});  // the same keys for every query
  must_have("mask", a.mask, {T, T});
  for (const double m : a.mask.to_vector<double>())
    if (m != 0 && m != 1)
      throw Error(
          fmt::format("--npy: mask.npy holds {}: wants 1 where a query may look and 0 where it may not; of a mask that is added to the scores, "
                      "save (mask == 0).astype(float)",
                      number(m)));
  return a;
}

struct Difference {
  double largest = 0;
  double excess = 0;  // over what rounding explains: up to 1 it is rounding
  std::string where;  // the excess is largest

  bool rounding() const { return excess <= 1; }
};

/// Rounding explains `relative` of an element, and `absolute`. Rows without a key to look at are left out.
Difference difference(const Tensor& here, const Tensor& there, double relative, double absolute, const std::vector<bool>& left_out) {
  const std::vector<double> a = here.to_vector<double>(), b = there.to_vector<double>();
  const auto columns = static_cast<std::size_t>(here.size(1));
  Difference out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (left_out[i / columns] || a[i] == b[i]) continue;
    const double d = std::fabs(a[i] - b[i]), share = d / (absolute + relative * std::max(std::fabs(a[i]), std::fabs(b[i])));
    const double excess = std::isfinite(share) ? share : HUGE_VAL;
    if (!(d <= out.largest)) out.largest = d;
    if (excess > out.excess) {
      out.excess = excess;
      out.where = fmt::format("at ({}, {}): {} there, {} here", i / columns, i % columns, number(b[i]), number(a[i]));
    }
    if (std::isnan(d)) break;
  }
  return out;
}

/// What a head may have been meant to compute, beside what NumPy computed.
struct Reading {
  std::string name;
  bool right;
  double allowed;     // in the output
  double least_peak;  // of each row's largest weight
  Difference output, weights;

  bool fits() const { return output.rounding() && weights.rounding(); }
  /// The least one explains the arrays best.
  auto rank() const {
    const int group = fits() ? 0 : output.rounding() ? 1 : right ? 2 : 3;
    return std::tuple(group, !right, !weights.rounding(), output.excess);
  }
};

std::vector<Reading> readings_of(const Arrays& a, const std::vector<bool>& left_out) {
  nn::SingleHeadSelfAttention head(0, 0);
  head.W_q = a.W_q, head.W_k = a.W_k, head.W_v = a.W_v;
  const Tensor &x = a.x, Q = matmul(x, a.W_q), K = matmul(x, a.W_k), V = matmul(x, a.W_v);
  const double d_k = static_cast<double>(Q.size(1)), d_model = static_cast<double>(x.size(1));

  // To first order, rounding moves a score by a few units in the last place of |q| |k| / sqrt(d_k), a weight by as much in relation (twice, as it
  // moves the sum of the row too), and the output by that times the largest value.
  const auto longest = [](const Tensor& t) { return std::sqrt(max(sum(square(t), {-1})).item<double>()); };
  const double unit = a.single ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const double smallest = a.single ? std::numeric_limits<float>::min() : std::numeric_limits<double>::min(), lengths = longest(Q) * longest(K);
  const double largest_value = max(abs(V)).item<double>();
  std::vector<Reading> out;
  const auto add = [&](std::string name, bool right, double scale, const Attention& here) {
    const double rounding = 4 * unit * (4 + lengths * scale), allowed = rounding * largest_value;
    const Difference output = difference(here.output, a.output, 0, allowed + smallest, left_out);
    out.push_back({std::move(name), right, allowed, min(max(here.weights, {-1})).item<double>(), output,
                   a.weights.defined() ? difference(here.weights, a.weights, 2 * rounding, smallest, left_out) : Difference()});
  };

  struct Masked {
    std::string name;
    Tensor keep;
    bool right;
  };
  const Tensor everything = ones({x.size(0), x.size(0)}, f64);
  std::vector<Masked> masks;
  if (a.mask.defined()) {
    masks.push_back({"with mask.npy", a.mask, true});
    masks.push_back({"with mask.npy the other way round, 1 where a query may not look", 1 - a.mask, false});
  } else {
    masks.push_back({"without mask", everything, true});
    masks.push_back({"with the look-ahead mask", tril(everything), true});
    masks.push_back({"np.triu in place of np.tril, which shows the future and hides the past", triu(everything), false});
  }
  const double scale = 1 / std::sqrt(d_k);
  for (const auto& [name, keep, right] : masks) {
    const Mask mask = Mask::keep(keep);
    add(name, right, scale, head(x, {.mask = mask}));
    if (!right) continue;
    // What goes wrong most often.
    const auto scaled = [&](double by) { return head(x, {.mask = mask, .scale = by}); };
    add("scores that are not scaled, " + name, false, 1, scaled(1));
    add("scores divided by d_k instead of its square root, " + name, false, 1 / d_k, scaled(1 / d_k));
    add("scores divided by sqrt(d_model), " + name, false, 1 / std::sqrt(d_model), scaled(1 / std::sqrt(d_model)));
    add("Q and K swapped, " + name, false, scale, scaled_dot_product_attention(K, Q, V, {.mask = mask}));
    const Tensor down = softmax(masked_fill(matmul(Q, transpose(K, 0, 1)) * scale, eq(keep, 0), -HUGE_VAL), 0);
    add("softmax over axis 0 instead of -1, " + name, false, scale, {matmul(down, V), down});
  }
  // Larger scores allow for more rounding: where nothing right fits, a mistake is one only if it comes much nearer.
  double nearest = HUGE_VAL;
  bool fits = false;
  for (const Reading& r : out)
    if (r.right) nearest = std::min(nearest, r.output.largest), fits = fits || r.output.rounding();
  if (!fits) std::erase_if(out, [&](const Reading& r) { return !r.right && !(r.output.largest < nearest / 2); });
  return out;
}

/// Whether the arrays are those of a right head.
bool compare(const std::filesystem::path& folder) {
  const NoGrad off;
  const Arrays a = load_arrays(folder);
  std::vector<bool> blind(static_cast<std::size_t>(a.x.size(0)));
  if (a.mask.defined()) blind = eq(sum(a.mask, {-1}), 0).to_vector<bool>();
  const std::vector<Reading> readings = readings_of(a, blind);
  const Reading& best = *std::min_element(readings.begin(), readings.end(), [](const Reading& l, const Reading& r) { return l.rank() < r.rank(); });

  fmt::print("Input shape: {}\nOutput shape: {}\nAttention weights shape: {}\n\n", python(a.x.shape()), python(a.output.shape()),
             python({a.x.size(0), a.x.size(0)}));
  for (std::size_t row = 0; row < blind.size(); ++row)
    if (blind[row]) fmt::print("Row {} of mask.npy is all 0. Attention to nothing is NaN in NumPy and 0 in heed: not compared.\n", row);
  fmt::print("output.npy, {}: largest difference {}", best.name, number(best.output.largest, 2));
  if (best.output.rounding())
    fmt::print(", rounding of {} (up to {:.2g})\n", a.precision, best.allowed);
  else
    fmt::print(" {}\nThis is NOT rounding of {}, which explains up to {:.2g}. No known mistake explains it{}.\n", best.output.where, a.precision,
               best.allowed, a.mask.defined() ? "" : "; a mask of your own goes into mask.npy");
  if (!best.right) fmt::print("This is NOT the lesson's head: it agrees with {}.\n", best.name);
  if (a.weights.defined())
    fmt::print("weights.npy: largest difference {}{}\n", number(best.weights.largest, 2),
               best.weights.rounding() ? ", rounding" : " " + best.weights.where + ": NOT rounding");
  if (!best.fits()) return false;

  std::string others;
  for (const Reading& r : readings)
    if (r.fits() && &r != &best) others += fmt::format("  {}\n", r.name);
  if (others.empty()) return best.right;
  fmt::print("\nThese arrays do not tell it from\n{}", others);
  if (best.least_peak > 0.999)
    fmt::print(
        "because the weights are saturated: each query looks at one key alone. Save arrays that tell: of W / np.sqrt(d_model), or of 0.01 * x.\n");
  else
    fmt::print("because the differences are below rounding: save other arrays, of more tokens or other sizes.\n");
  return best.right;
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
