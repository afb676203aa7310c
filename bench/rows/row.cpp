#include "row.h"

#include <charconv>
#include <map>
#include <sstream>

namespace heed::bench {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why) { throw Error("row \"" + name + "\": " + why); }

Index whole(const std::string& name, std::string_view text) {
  Index n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1) refuse(name, "not a size: " + std::string(text));
  return n;
}

std::vector<Index> wholes(const std::string& name, const std::string& text, char separator) {
  std::vector<Index> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) out.push_back(whole(name, part));
  return out;
}

const std::map<std::string, std::size_t>& size_counts() {
  static const std::map<std::string, std::size_t> counts = {{"overhead", 2},     {"attention_step", 3}, {"attention_shapes", 3},
                                                            {"sdpa_forward", 3}, {"sdpa_train", 3},     {"gpt", 5},
                                                            {"linear", 3},       {"softmax", 2},        {"softmax_train", 2}};
  return counts;
}

}  // namespace

Row::Row(const std::string& text) : name(text) {
  std::istringstream words(text);
  std::string word;
  words >> kind;
  const auto known = size_counts().find(kind);
  if (known == size_counts().end()) {
    std::string kinds;
    for (const auto& entry : size_counts()) kinds += (kinds.empty() ? "" : ", ") + entry.first;
    refuse(name, "the first word is none of " + kinds);
  }
  const bool overhead = kind == "overhead";
  if (overhead && !(words >> word && word == "add")) refuse(name, "the only op is add");
  if (words >> word) sizes = wholes(name, word, overhead ? 'x' : ',');
  if (sizes.size() != known->second) refuse(name, "wants " + std::to_string(known->second) + " sizes");

  const bool sdpa = kind.starts_with("sdpa");
  while (words >> word) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const auto number = [&] { return whole(name, equals == std::string::npos ? "" : std::string_view(word).substr(equals + 1)); };
    if (word == "f64")
      dtype = f64;
    else if (word == "onednn")
      backend = Backend::onednn;
    else if (word == "portable")
      backend = Backend::portable;
    else if (overhead && key == "chain")
      chain = number();
    else if (sdpa && word == "composed")
      kernel = Kernel::composed;
    else if (sdpa && word == "full")
      sight = Sight::full;
    else if (sdpa && word == "keep")
      sight = Sight::keep;
    else if (sdpa && word == "lengths")
      sight = Sight::lengths;
    else if (sdpa && key == "window")
      sight = Sight::window, window = number();
    else if (sdpa && key == "d_v")
      d_v = number();
    else
      refuse(name, "no such option: " + word);
  }
  if (sdpa && d_v == 0) d_v = sizes[2];
}

}  // namespace heed::bench
