#include "npy.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "../raise.h"
#include "elements.h"

// The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

namespace heed {
namespace detail {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct Header {
  Element element = Element::f32;
  ByteOrder order = ByteOrder::little;
  bool columns_first = false;
  std::vector<std::uint64_t> shape;
};

/// Reads the Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } with its keys in any order.
class HeaderParser {
 public:
  HeaderParser(const std::string& where, std::string_view text) : where_(where), text_(text) {}

  Header parse() {
    bool has_descr = false, has_order = false, has_shape = false;
    const auto first = [this](bool& has, std::string_view key) {
      if (std::exchange(has, true)) fail(fmt::format("the key '{}' appears twice", key));
    };
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr") {
        first(has_descr, key);
        descr();
      } else if (key == "fortran_order") {
        first(has_order, key);
        header_.columns_first = boolean_literal();
      } else if (key == "shape") {
        first(has_shape, key);
        shape();
      } else {
        fail("a key is none of descr, fortran_order and shape");
      }
      if (accept('}')) break;
      expect(',');
    }
    skip_spaces();
    if (at_ != text_.size()) fail("something follows the closing brace");
    if (!has_descr || !has_order || !has_shape) fail("descr, fortran_order or shape is missing");
    return header_;
  }

 private:
  [[noreturn]] void fail(std::string_view rule) const { raise<IoError>("{}: bad header: {}: at byte {} of {}", where_, rule, at_, printable(text_)); }
  /// For error texts.
  static std::string printable(std::string_view text) {
    std::string out;
    for (char c : text.substr(0, 120)) out += c >= ' ' && c <= '~' ? c : '?';
    return out;
  }

  void skip_spaces() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' is expected", c));
  }
  bool accept_word(std::string_view word) {
    skip_spaces();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string_view string() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("a string does not end");
    const std::string_view content = text_.substr(at_, end - at_);
    if (content.find('\\') != std::string_view::npos) fail("a string has an escape");
    at_ = end + 1;
    return content;
  }

  bool boolean_literal() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("fortran_order is neither True nor False");
  }

  void descr() {
    skip_spaces();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with('[') || rest.starts_with('(')) raise<IoError>("{}: structured dtypes are not read: {}", where_, printable(rest));
    const std::string_view name = string();
    if (name.find('O') != std::string_view::npos) raise<IoError>("{}: arrays of Python objects are not read: dtype '{}'", where_, printable(name));
    struct Known {
      std::string_view code;
      Element element;
    };
    static constexpr Known known[] = {{"f2", Element::f16}, {"f4", Element::f32}, {"f8", Element::f64}, {"i1", Element::i8},     {"i2", Element::i16},
                                      {"i4", Element::i32}, {"i8", Element::i64}, {"u1", Element::u8},  {"b1", Element::boolean}};
    for (const Known& k : known) {
      if (name.size() != 3 || name.substr(1) != k.code) continue;
      const char order = name[0];
      // One byte has no order; NumPy writes '|' for it.
      if (order != '<' && order != '>' && order != '=' && !(order == '|' && size_of(k.element) == 1)) break;
      header_.element = k.element;
      header_.order = order == '>' ? ByteOrder::big : ByteOrder::little;
      return;
    }
    raise<IoError>("{}: dtype '{}' is not read: f2, f4, f8, i1, i2, i4, i8, u1 and b1 are", where_, printable(name));
  }

  void shape() {
    expect('(');
    while (!accept(')')) {
      if (header_.shape.size() == Dims::max_rank) fail("the rank is above 8");
      header_.shape.push_back(whole_number());
      if (accept(')')) {
        if (header_.shape.size() == 1) fail("a tuple of one has a comma behind its element");
        break;
      }
      expect(',');
    }
  }

  std::uint64_t whole_number() {
    skip_spaces();
    const std::size_t start = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (__builtin_mul_overflow(value, std::uint64_t{10}, &value) || __builtin_add_overflow(value, digit, &value)) fail("a size is too large");
    }
    if (at_ == start) fail("a size that is not negative is expected");
    if (at_ - start > 1 && text_[start] == '0') fail("a size begins with 0");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote long numbers
    return value;
  }

  const std::string& where_;
  std::string_view text_;
  std::size_t at_ = 0;
  Header header_;
};

Tensor read(Source& in) {
  const std::string& where = in.where();
  std::array<unsigned char, 12> prefix{};  // magic, version, length of the header in 2 or 4 bytes
  const auto read_prefix = [&](std::size_t from, std::size_t to) {
    if (in.size() < to) raise<IoError>("{}: the file ends inside of its first {} bytes: it has {}", where, to, in.size());
    in.read(from, std::as_writable_bytes(std::span(prefix).subspan(from, to - from)));
  };
  read_prefix(0, 10);
  if (!std::equal(magic.begin(), magic.end(), prefix.begin(), [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; }))
    raise<IoError>("{}: not an npy file: it does not begin with \\x93NUMPY", where);
  const unsigned major = prefix[6], minor = prefix[7];
  if (major < 1 || major > 3 || minor != 0) raise<IoError>("{}: version {}.{} is not read: 1.0, 2.0 and 3.0 are", where, major, minor);
  std::uint64_t begin = 10, length = prefix[8] | std::uint64_t{prefix[9]} << 8;
  if (major > 1) {
    begin = 12;
    read_prefix(10, 12);
    length |= std::uint64_t{prefix[10]} << 16 | std::uint64_t{prefix[11]} << 24;
  }
  if (length > in.size() - begin) raise<IoError>("{}: a header of {} bytes does not fit into a file of {}", where, length, in.size());

  std::string text(static_cast<std::size_t>(length), '\0');
  in.read(begin, std::as_writable_bytes(std::span(text)));
  const Header header = HeaderParser(where, text).parse();
  const auto bytes = byte_count(header.shape, header.element);
  const std::uint64_t data = begin + length, have = in.size() - data;
  if (!bytes) raise<IoError>("{}: more elements than can be addressed: shape {}", where, shape_text(header.shape));
  if (*bytes != have) raise<IoError>("{}: shape {} wants {} bytes of data: the file has {}", where, shape_text(header.shape), *bytes, have);

  Dims shape;
  for (std::uint64_t size : header.shape) shape.push_back(static_cast<Index>(size));
  if (!header.columns_first) return read_tensor(in, data, header.element, header.order, shape, "data");
  // Columns first is rows first of the reversed shape.
  std::reverse(shape.begin(), shape.end());
  const Tensor reversed = read_tensor(in, data, header.element, header.order, shape, "data");
  Layout layout{shape, reversed.strides(), 0};
  std::reverse(layout.shape.begin(), layout.shape.end());
  std::reverse(layout.strides.begin(), layout.strides.end());
  return contiguous_data(make_view(reversed, layout));
}

void require_defined(const char* op, const Tensor& t) {
  if (!t.defined()) raise<IoError>("{}: the tensor is undefined", op);
}

void write(Sink& out, const Tensor& t) {
  constexpr const char* codes[] = {"<f4", "<f8", "<i8", "|b1"};
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", codes[static_cast<int>(t.dtype())], t.shape());
  const std::size_t prefix = magic.size() + 4, total = (prefix + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - prefix - 1, ' ');
  header += '\n';
  std::string start(magic);
  start += {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  start += header;
  out.write(std::as_bytes(std::span(start)));
  write_elements(out, t);
}

}  // namespace

Tensor read_npy(std::span<const std::byte> file) {
  MemorySource in("load_npy", file);
  return read(in);
}

std::vector<std::byte> write_npy(const Tensor& t) {
  require_defined("save_npy", t);
  MemorySink out;
  write(out, t);
  return out.take();
}

}  // namespace detail

Tensor load_npy(const std::filesystem::path& path) {
  detail::FileSource in("load_npy", path);
  return detail::read(in);
}

void save_npy(const std::filesystem::path& path, const Tensor& t) {
  detail::require_defined("save_npy", t);
  detail::AtomicFile out("save_npy", path);
  detail::write(out, t);
  out.commit();
}

}  // namespace heed
