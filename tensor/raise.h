#pragma once

// Private (fmt is): how the library throws. An op hands on its name and its caller, `raise<ShapeError>(op, "inner sizes differ: {} and {}", a, b)`
// with `const OpName op{"matmul", caller}`; what has no caller writes its name into the text.

#include <fmt/format.h>

#include <string>

#include "caller.h"
#include "dtype.h"
#include "error.h"
#include "format.h"
#include "layout.h"

namespace heed::detail {

/// " (called at FILE:LINE)"; nothing where nobody knows the place, or where it lies in the library: an op that another op is made of.
std::string called_at(const Caller&);

/// "NAME: rule (called at FILE:LINE)"
std::string error_text(const OpName&, fmt::string_view rule, fmt::format_args);

template <class E, class... A>
[[noreturn]] void raise(fmt::format_string<A...> text, A&&... args) {
  throw E(fmt::format(text, std::forward<A>(args)...));
}

template <class E, class... A>
[[noreturn]] void raise(const OpName& op, fmt::format_string<A...> rule, A&&... args) {
  throw E(error_text(op, rule, fmt::make_format_args(args...)));
}

}  // namespace heed::detail
