#pragma once

namespace heed {

/// The place in a user's program that called an op: what errors, anomaly mode, gradient checks and graph pictures point at.
/// As a defaulted last parameter (`Caller caller = Caller::here()`) it captures the call site, not the callee.
struct Caller {
  const char* file = "";  ///< as the compiler was given it
  int line = 0;           ///< 0 where nobody knows

  /// The place where this default argument is written out.
  static constexpr Caller here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// An op's name and the place that called it: an error of the op reads "NAME: rule broken: the values (called at FILE:LINE)". A name alone has no
/// place, and its errors name none: better than a line that does not belong to the user.
struct OpName {
  const char* name;  ///< a literal
  Caller caller;     ///< the place, if it is known
  /// Of an op that was called at `from`.
  constexpr OpName(const char* op, Caller from = {}) : name(op), caller(from) {}
};

}  // namespace heed
