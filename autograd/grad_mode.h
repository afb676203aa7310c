#pragma once

#include "../tensor/tensor.h"

namespace heed {

/// While alive, ops of this thread record nothing: results need no gradient, and leaves may be written in place.
class NoGrad {
 public:
  [[nodiscard]] NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

namespace detail {

/// Turns recording on or off while alive.
class GradModeScope {
 public:
  explicit GradModeScope(bool enabled);
  ~GradModeScope();
  GradModeScope(const GradModeScope&) = delete;
  GradModeScope& operator=(const GradModeScope&) = delete;

 private:
  bool before_;
};

}  // namespace detail
}  // namespace heed
