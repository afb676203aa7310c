#pragma once

// Private (fmt is): how the library throws. `raise<ShapeError>("matmul: inner sizes differ: {} and {}", a, b)`.

#include <fmt/format.h>

#include "dtype.h"
#include "error.h"
#include "format.h"
#include "layout.h"

namespace heed::detail {

template <class E, class... A>
[[noreturn]] void raise(fmt::format_string<A...> text, A&&... args) {
  throw E(fmt::format(text, std::forward<A>(args)...));
}

}  // namespace heed::detail
