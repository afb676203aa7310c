#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string_view>

#include "format.h"

namespace heed {
namespace detail {
namespace {

constexpr Index most_elements = 1000;  ///< more than these are abbreviated
constexpr std::size_t line_width = 80;
constexpr int significant = 6;

/// How all floats of one tensor are written, so that columns line up.
struct FloatStyle {
  bool scientific = false;
  int decimals = 0;

  std::string operator()(double x) const {
    // Negative NaN is a matter of chance on x86: the sign bit says nothing about the value.
    if (std::isnan(x)) return "nan";
    return scientific ? fmt::format("{:.{}e}", x, decimals) : fmt::format("{:.{}f}", x, decimals);
  }
};

/// How many zeros end the digits before an exponent.
int trailing_zeros(std::string_view number) {
  number = number.substr(0, number.find('e'));
  return static_cast<int>(number.size() - number.find_last_not_of('0') - 1);
}

/// Whole numbers below 1e8 in full; else 6 significant digits of the largest number, with the same decimals for all, while the
/// smallest keeps at least two of them; else an exponent. Zeros that end all numbers are dropped.
FloatStyle choose_style(const std::vector<double>& values) {
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  bool whole = true;
  for (double x : values) {
    if (!std::isfinite(x)) continue;
    whole = whole && x == std::trunc(x);
    if (x != 0) smallest = std::min(smallest, std::abs(x)), largest = std::max(largest, std::abs(x));
  }
  if (whole && largest < 1e8) return {};

  FloatStyle style{true, significant - 1};
  if (largest >= 1e-4 && largest < 1e5 && smallest >= 1e-4 * largest)
    style = {false, significant - 1 - static_cast<int>(std::floor(std::log10(largest)))};
  int zeros = style.decimals - (style.scientific ? 0 : 1);  // a fixed number with a fraction somewhere keeps its point
  for (double x : values)
    if (std::isfinite(x)) zeros = std::min(zeros, trailing_zeros(style(x)));
  style.decimals -= zeros;
  return style;
}

/// Which indices of a dim are printed: all, or as many as `edge` at both ends.
struct Shown {
  Index size, edge;
  bool has_gap() const { return size > 2 * edge; }
  Index count() const { return has_gap() ? 2 * edge : size; }
  Index index(Index i) const { return has_gap() && i >= edge ? size - count() + i : i; }
};

class Printer {
 public:
  explicit Printer(const Tensor& t) : tensor_(t), shape_(t.shape()), strides_(t.strides()) {
    const auto shown_elements = [&] {
      Index n = 1;
      for (Index size : shape_) n *= Shown{size, edge_}.count();
      return n;
    };
    edge_ = std::numeric_limits<Index>::max() / 2;
    if (t.numel() > most_elements)
      for (edge_ = 3; edge_ > 1 && shown_elements() > most_elements;) --edge_;
  }

  std::string print() {
    dispatch(tensor_.dtype(), [&]<class T>() { write_cells(collect<T>()); });
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
    brackets(0);
    return std::move(out_);
  }

 private:
  template <class T>
  std::vector<T> collect() const {
    std::vector<T> values;
    collect(0, tensor_.data<T>(), values);
    return values;
  }
  template <class T>
  void collect(std::size_t dim, const T* p, std::vector<T>& values) const {
    if (dim == shape_.size()) return values.push_back(*p);
    const Shown shown{shape_[dim], edge_};
    for (Index i = 0; i < shown.count(); ++i) collect(dim + 1, p + shown.index(i) * strides_[dim], values);
  }

  template <class T>
  void write_cells(const std::vector<T>& values) {
    if constexpr (std::is_floating_point_v<T>) {
      const FloatStyle style = choose_style(std::vector<double>(values.begin(), values.end()));
      for (T x : values) cells_.push_back(style(x));
    } else {
      for (T x : values) cells_.push_back(fmt::format("{}", x));
    }
  }

  void brackets(std::size_t dim) {
    if (dim == shape_.size()) {
      put(fmt::format("{:>{}}", cells_[next_++], width_));
      return;
    }
    const bool innermost = dim + 1 == shape_.size();
    const Shown shown{shape_[dim], edge_};
    put("[");
    for (Index i = 0; i < shown.count(); ++i) {
      if (i > 0) separate(dim, innermost ? width_ : 0);
      if (shown.has_gap() && i == shown.edge) {
        put("...");
        separate(dim, innermost ? width_ : 0);
      }
      brackets(dim + 1);
    }
    put("]");
  }

  /// Between elements a comma, and a new line when `next_width` characters no longer fit; between rows new lines, one more for each level.
  void separate(std::size_t dim, std::size_t next_width) {
    const std::size_t level = shape_.size() - 1 - dim;
    out_ += ',';
    ++column_;
    if (level == 0 && column_ + 1 + next_width + 1 <= line_width) return put(" ");
    out_.append(std::max<std::size_t>(level, 1), '\n');
    column_ = 0;
    put(std::string(dim + 1, ' '));
  }

  void put(std::string_view s) {
    out_ += s;
    column_ += s.size();
  }

  const Tensor& tensor_;
  const Dims &shape_, &strides_;
  Index edge_;
  std::vector<std::string> cells_;
  std::size_t next_ = 0, width_ = 0, column_ = 0;
  std::string out_;
};

}  // namespace

std::string text(DType dtype) { return name(dtype); }

std::string text(const Dims& dims) {
  std::string out = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", dims[i]);
  return out + (dims.size() == 1 ? ",)" : ")");
}

std::string text(const Number& n) { return n.is_whole ? fmt::format("{}", n.whole) : fmt::format("{}", n.real); }

std::string text(const Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string out = t.numel() == 0 ? "empty " + text(t.shape()) : Printer(t).print();
  if (t.dtype() != f32) out += fmt::format(", {}", name(t.dtype()));
  return out;
}

}  // namespace detail

// Strings, so that flags and precision of the stream neither matter nor change.
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << detail::text(dtype); }
std::ostream& operator<<(std::ostream& out, const Dims& dims) { return out << detail::text(dims); }
std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << detail::text(tensor); }

}  // namespace heed
