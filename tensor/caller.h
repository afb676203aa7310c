#pragma once

namespace heed {

/// The place in a user's program that called an op: what anomaly mode, gradient checks and graph pictures point at.
/// As a defaulted last parameter (`Caller caller = Caller::here()`) it captures the call site, not the callee.
struct Caller {
  const char* file = "";
  int line = 0;

  static constexpr Caller here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

}  // namespace heed
