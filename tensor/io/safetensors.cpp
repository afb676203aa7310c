#include "safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "../raise.h"
#include "elements.h"

// The format: https://github.com/huggingface/safetensors, section "Format" of its README.

namespace heed {
namespace detail {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, Tensor>;
using Strings = std::map<std::string, std::string>;

constexpr std::uint64_t header_limit = 100'000'000;
constexpr std::string_view metadata_key = "__metadata__", tied_prefix = "heed.tied:";

/// A text from a file for an error text: in quotes, ASCII, not too long.
std::string in_quotes(const std::string& text) { return json(text.substr(0, 100)).dump(-1, ' ', true, json::error_handler_t::replace); }

struct Entry {
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape, range;
};

struct Header {
  std::map<std::string, Entry> entries;
  Strings metadata;
};

/// Takes the events of nlohmann's parser, which keeps no stack of its own for them: deep nesting is refused at the first level too many,
/// and a key that comes twice is seen, which a parsed json object would hide.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}
  Header take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (level_ == Level::outside) return enter(Level::names);
    if (level_ != Level::names) unexpected("an object");
    if (name_ == metadata_key) return enter(Level::metadata);
    entry_ = &header_.entries[name_];
    return enter(Level::entry);
  }

  bool key(std::string& key) override {
    if (level_ == Level::names) {
      if (key == metadata_key ? std::exchange(has_metadata_, true) : header_.entries.contains(key)) fail("duplicate key {}", in_quotes(key));
      name_ = key;
    } else if (level_ == Level::metadata) {
      if (header_.metadata.contains(key)) fail("duplicate key {} in __metadata__", in_quotes(key));
      string_ = &header_.metadata[key];
    } else {
      field_ = key;
      const bool is_duplicate = key == "dtype"          ? entry_->dtype.has_value()
                                : key == "shape"        ? entry_->shape.has_value()
                                : key == "data_offsets" ? entry_->range.has_value()
                                                        : (fail("unknown key {} in tensor {}", in_quotes(key), in_quotes(name_)), false);
      if (is_duplicate) fail("duplicate key {} in tensor {}", in_quotes(key), in_quotes(name_));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (level_ == Level::metadata)
      *string_ = value;
    else if (level_ == Level::entry && field_ == "dtype")
      entry_->dtype = value;
    else
      unexpected("a string");
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::entry || field_ == "dtype") unexpected("an array");
    numbers_ = &(field_ == "shape" ? entry_->shape : entry_->range).emplace();
    return enter(Level::numbers);
  }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (level_ != Level::numbers) unexpected("a number");
    const bool is_shape = field_ == "shape";
    if (numbers_->size() == (is_shape ? Dims::max_rank : 2))
      fail("more than {} in tensor {}", is_shape ? "8 sizes in shape" : "2 numbers in data_offsets", in_quotes(name_));
    numbers_->push_back(value);
    return true;
  }

  bool end_array() override { return enter(Level::entry); }

  bool end_object() override {
    if (level_ == Level::entry) {
      if (!entry_->dtype || !entry_->shape || !entry_->range) fail("dtype, shape or data_offsets is missing in tensor {}", in_quotes(name_));
      if (entry_->range->size() != 2) fail("data_offsets of tensor {} are not 2 numbers", in_quotes(name_));
    }
    return enter(level_ == Level::names ? Level::outside : Level::names);
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(json::number_integer_t) override { unexpected("a negative number"); }
  bool number_float(json::number_float_t, const std::string&) override { unexpected("a number that is not whole or too large"); }
  bool binary(json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string& token, const json::exception&) override {
    fail("not JSON: at byte {}, near {}", position, in_quotes(token.substr(token.size() - std::min<std::size_t>(token.size(), 40))));
  }

 private:
  enum class Level { outside, names, metadata, entry, numbers };

  bool enter(Level level) {
    level_ = level;
    return true;
  }

  template <class... A>
  [[noreturn]] void fail(fmt::format_string<A...> rule, A&&... args) const {
    raise<IoError>("{}: bad header: {}", where_, fmt::format(rule, std::forward<A>(args)...));
  }
  [[noreturn]] void unexpected(std::string_view what) const {
    if (level_ == Level::metadata) fail("{} in __metadata__, which maps strings to strings", what);
    if (level_ == Level::names) fail("{} as the value of {}", what, in_quotes(name_));
    fail("{} in {} of tensor {}", what, in_quotes(field_), in_quotes(name_));
  }

  const std::string& where_;
  Header header_;
  Level level_ = Level::outside;
  bool has_metadata_ = false;
  std::string name_, field_;
  Entry* entry_ = nullptr;
  std::string* string_ = nullptr;
  std::vector<std::uint64_t>* numbers_ = nullptr;
};

std::optional<Element> element_of(std::string_view dtype) {
  struct Known {
    std::string_view name;
    Element element;
  };
  static constexpr Known known[] = {{"F32", Element::f32}, {"F64", Element::f64},     {"F16", Element::f16}, {"BF16", Element::bf16},
                                    {"I64", Element::i64}, {"I32", Element::i32},     {"I16", Element::i16}, {"I8", Element::i8},
                                    {"U8", Element::u8},   {"BOOL", Element::boolean}};
  for (const Known& k : known)
    if (k.name == dtype) return k.element;
  return std::nullopt;
}

/// A header whose ranges are known to tile the data, and where the data begin.
struct Contents {
  Header header;
  std::vector<const std::pair<const std::string, Entry>*> by_offset;
  std::uint64_t data = 0;
};

/// The ranges in the order of their beginnings must follow each other from the first byte of the data to the last.
void check_ranges(const Source& in, Contents& contents) {
  for (const auto& named : contents.header.entries) contents.by_offset.push_back(&named);
  std::sort(contents.by_offset.begin(), contents.by_offset.end(), [](auto* a, auto* b) { return *a->second.range < *b->second.range; });
  std::uint64_t at = 0;
  const std::uint64_t size = in.size() - contents.data;
  for (const auto* named : contents.by_offset) {
    const auto& [name, entry] = *named;
    const std::uint64_t begin = (*entry.range)[0], end = (*entry.range)[1];
    if (begin > end) raise<IoError>("{}: tensor {}: data_offsets go backwards: [{}, {}]", in.where(), in_quotes(name), begin, end);
    if (begin != at)
      raise<IoError>("{}: tensor {}: {} before its data: they begin at {}, expected at {}", in.where(), in_quotes(name),
                     begin > at ? "a hole" : "an overlap", begin, at);
    if (end > size) raise<IoError>("{}: tensor {}: data end at {}: the file holds {} bytes of data", in.where(), in_quotes(name), end, size);
    at = end;
    const auto element = element_of(*entry.dtype);
    if (!element) continue;  // a matter of whoever wants the elements
    const auto bytes = byte_count(*entry.shape, *element);
    if (!bytes) raise<IoError>("{}: tensor {}: more elements than can be addressed: {}", in.where(), in_quotes(name), shape_text(*entry.shape));
    if (*bytes != end - begin)
      raise<IoError>("{}: tensor {}: {} of shape {} takes {} bytes: data_offsets [{}, {}] have {}", in.where(), in_quotes(name), *entry.dtype,
                     shape_text(*entry.shape), *bytes, begin, end, end - begin);
  }
  if (at != size) raise<IoError>("{}: bytes are left over: the tensors end at {}, the data at {}", in.where(), at, size);
}

Contents read_contents(Source& in) {
  const std::string& where = in.where();
  std::array<unsigned char, 8> prefix{};
  if (in.size() < prefix.size()) raise<IoError>("{}: the file ends inside of the 8 bytes of the header's length: it has {}", where, in.size());
  in.read(0, std::as_writable_bytes(std::span(prefix)));
  std::uint64_t length = 0;
  for (std::size_t i = prefix.size(); i-- > 0;) length = length << 8 | prefix[i];
  if (length > header_limit) raise<IoError>("{}: a header of {} bytes: at most {} are allowed", where, length, header_limit);
  if (length > in.size() - prefix.size()) raise<IoError>("{}: a header of {} bytes does not fit into a file of {}", where, length, in.size());

  std::string text(static_cast<std::size_t>(length), '\0');
  in.read(prefix.size(), std::as_writable_bytes(std::span(text)));
  if (!text.starts_with('{')) raise<IoError>("{}: bad header: it does not begin with a brace", where);
  const std::size_t last = text.find_last_not_of(' ');
  if (text[last] != '}') raise<IoError>("{}: bad header: it does not end with a brace and spaces", where);
  // The parser would take a zero byte for the end of its input.
  if (text.find('\0') != std::string::npos) raise<IoError>("{}: bad header: a zero byte", where);

  Contents contents;
  HeaderReader reader(where);
  json::sax_parse(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(last) + 1, &reader);
  contents.header = reader.take();
  contents.data = prefix.size() + length;
  check_ranges(in, contents);
  return contents;
}

Tensors read_tensors(Source& in, const Contents& contents) {
  for (const auto& [name, entry] : contents.header.entries)
    if (!element_of(*entry.dtype))
      raise<IoError>("{}: tensor {}: dtype {} is not read: F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL are", in.where(), in_quotes(name),
                     in_quotes(*entry.dtype));
  for (const auto& [key, first] : contents.header.metadata) {
    if (!key.starts_with(tied_prefix)) continue;
    const std::string other = key.substr(tied_prefix.size());
    if (!contents.header.entries.contains(first))
      raise<IoError>("{}: tensor {} is tied to {}, which is not in the file", in.where(), in_quotes(other), in_quotes(first));
    if (contents.header.entries.contains(other))
      raise<IoError>("{}: tensor {} is stored, and tied to {} as well", in.where(), in_quotes(other), in_quotes(first));
  }

  Tensors tensors;
  for (const auto* named : contents.by_offset) {
    const auto& [name, entry] = *named;
    Dims shape;
    for (std::uint64_t size : *entry.shape) shape.push_back(static_cast<Index>(size));
    const std::uint64_t offset = contents.data + (*entry.range)[0];
    tensors[name] = read_tensor(in, offset, *element_of(*entry.dtype), ByteOrder::little, shape, "tensor " + in_quotes(name));
  }
  for (const auto& [key, first] : contents.header.metadata)
    if (key.starts_with(tied_prefix)) tensors[key.substr(tied_prefix.size())] = tensors[first];
  return tensors;
}

Tensors read_tensors(Source& in) { return read_tensors(in, read_contents(in)); }
Strings read_metadata(Source& in) { return read_contents(in).header.metadata; }

bool is_same_view(const Tensor& a, const Tensor& b) {
  const TensorImpl &x = a.impl("save_safetensors"), &y = b.impl("save_safetensors");
  return x.storage == y.storage && x.dtype == y.dtype && x.layout.offset == y.layout.offset && x.layout.shape == y.layout.shape &&
         x.layout.strides == y.layout.strides;
}

/// What a file will hold: decided, and found writable, before there is one.
struct Plan {
  std::string start;  ///< length of the header, and the header
  std::vector<const Tensor*> order;
};

Plan plan_file(const Tensors& tensors, Strings metadata) {
  const auto literal = [](const std::string& text) {
    try {
      return json(text).dump();
    } catch (const json::exception&) {
      raise<IoError>("save_safetensors: not UTF-8: {}", in_quotes(text));
    }
  };
  std::erase_if(metadata, [](const auto& item) { return item.first.starts_with(tied_prefix); });

  std::vector<const std::pair<const std::string, Tensor>*> stored;
  std::multimap<const Storage*, const std::pair<const std::string, Tensor>*> by_storage;
  for (const auto& named : tensors) {
    const std::string& name = named.first;
    const Tensor& tensor = named.second;
    if (!tensor.defined()) raise<IoError>("save_safetensors: tensor {} is undefined", in_quotes(name));
    if (name == metadata_key) raise<IoError>("save_safetensors: a tensor cannot be named {}: the format keeps that name", metadata_key);
    const Storage* storage = tensor.impl("save_safetensors").storage.get();
    const auto [first, last] = by_storage.equal_range(storage);
    const auto twin = std::find_if(first, last, [&](const auto& item) { return is_same_view(item.second->second, tensor); });
    if (twin != last) {
      metadata[std::string(tied_prefix) + name] = twin->second->first;
      continue;
    }
    by_storage.emplace(storage, &named);
    stored.push_back(&named);
  }
  // Large elements first, so that all are aligned; the map has sorted the names.
  std::stable_sort(stored.begin(), stored.end(), [](auto* a, auto* b) { return size_of(a->second.dtype()) > size_of(b->second.dtype()); });

  std::string header = "{";
  const auto begin_item = [&header](const std::string& key) { header += (header.size() == 1 ? "" : ",") + key + ":"; };
  if (!metadata.empty()) {
    begin_item(literal(std::string(metadata_key)));
    char before = '{';
    for (const auto& [key, value] : metadata) {
      header += before + literal(key) + ":" + literal(value);
      before = ',';
    }
    header += '}';
  }
  Plan plan;
  std::uint64_t offset = 0;
  for (const auto* named : stored) {
    constexpr const char* dtypes[] = {"F32", "F64", "I64", "BOOL"};
    const auto& [name, tensor] = *named;
    const std::uint64_t end = offset + static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
    begin_item(literal(name));
    header += fmt::format(R"({{"dtype":"{}","shape":[)", dtypes[static_cast<int>(tensor.dtype())]);
    for (std::size_t i = 0; i < tensor.shape().size(); ++i) header += fmt::format("{}{}", i == 0 ? "" : ",", tensor.shape()[i]);
    header += fmt::format(R"(],"data_offsets":[{},{}]}})", offset, end);
    offset = end;
    plan.order.push_back(&tensor);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > header_limit) raise<IoError>("save_safetensors: a header of {} bytes: at most {} are allowed", header.size(), header_limit);
  for (std::size_t i = 0; i < 8; ++i) plan.start += static_cast<char>(header.size() >> (8 * i) & 0xff);
  plan.start += header;
  return plan;
}

void write_plan(Sink& out, const Plan& plan) {
  out.write(std::as_bytes(std::span(plan.start)));
  for (const Tensor* tensor : plan.order) write_elements(out, *tensor);
}

}  // namespace

std::vector<SafetensorsEntry> list_safetensors(const std::filesystem::path& path) {
  FileSource in("list_safetensors", path);
  const Contents contents = read_contents(in);
  std::vector<SafetensorsEntry> out;
  for (const auto* named : contents.by_offset) {
    const auto& [name, entry] = *named;
    out.push_back({name, *entry.dtype, *entry.shape, (*entry.range)[1] - (*entry.range)[0]});
  }
  return out;
}

SafetensorsFile load_safetensors_file(const char* op, const std::filesystem::path& path) {
  FileSource in(op, path);
  const Contents contents = read_contents(in);
  return {read_tensors(in, contents), contents.header.metadata};
}

Tensors read_safetensors(std::span<const std::byte> file) {
  MemorySource in("load_safetensors", file);
  return read_tensors(in);
}

Strings read_safetensors_metadata(std::span<const std::byte> file) {
  MemorySource in("safetensors_metadata", file);
  return read_metadata(in);
}

std::vector<std::byte> write_safetensors(const Tensors& tensors, const Strings& metadata) {
  MemorySink out;
  write_plan(out, plan_file(tensors, metadata));
  return out.take();
}

}  // namespace detail

std::map<std::string, Tensor> load_safetensors(const std::filesystem::path& path) {
  detail::FileSource in("load_safetensors", path);
  return detail::read_tensors(in);
}

std::map<std::string, std::string> safetensors_metadata(const std::filesystem::path& path) {
  detail::FileSource in("safetensors_metadata", path);
  return detail::read_metadata(in);
}

void save_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const detail::Plan plan = detail::plan_file(tensors, metadata);
  detail::AtomicFile out("save_safetensors", path);
  detail::write_plan(out, plan);
  out.commit();
}

}  // namespace heed
