#include "raise.h"

#include <string_view>

namespace heed::detail {
namespace {

/// Whether a file, as the compiler was given it, is one of the library's: where it was built, or an installed header.
bool is_ours(std::string_view file) {
  constexpr std::string_view here = __builtin_FILE(), below_root = "tensor/raise.cpp";
  constexpr std::string_view root = here.substr(0, here.size() - below_root.size());
  static_assert(here.ends_with(below_root));
  for (std::string_view folder : {"tensor/", "autograd/", "nn/"}) {
    if (file.starts_with(root) && file.substr(root.size()).starts_with(folder)) return true;
    if (file.ends_with(".h") && file.find("/heed/" + std::string(folder)) != file.npos) return true;
  }
  return false;
}

}  // namespace

std::string called_at(const Caller& caller) {
  if (caller.line == 0 || is_ours(caller.file)) return {};
  return fmt::format(" (called at {}:{})", caller.file, caller.line);
}

std::string error_text(const OpName& op, fmt::string_view rule, fmt::format_args args) {
  return fmt::format("{}: {}{}", op.name, fmt::vformat(rule, args), called_at(op.caller));
}

}  // namespace heed::detail
