#pragma once

namespace heed {

/// The place in a user's program that called an op: what anomaly mode, gradient checks and graph pictures point at.
/// As a defaulted last parameter (`Caller caller = Caller::here()`) it captures the call site, not the callee.
struct Caller {
  const char* file = "";  ///< as the compiler was given it
  int line = 0;           ///< 0 where nobody knows

  /// The place where this default argument is written out.
  static constexpr Caller here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

}  // namespace heed
