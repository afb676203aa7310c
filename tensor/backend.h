#pragma once

namespace heed {

/// Whose code computes f32 products and softmax with its gradient. Everything else, and all of f64, is heed's own.
enum class Backend {
  automatic,  ///< whichever was measured to be the faster one at these sizes
  onednn,     ///< oneDNN for every product and softmax that it can do; heed's kernels for the rest
  portable    ///< heed's kernels
};

/// While alive, ops of this thread, and gradients whose backward runs in it, are computed by `backend`: to compare the two, or to tell whose fault
/// something is. What oneDNN cannot do (empty or repeated operands, vectors with gaps, rows of -inf in softmax, products under `set_deterministic`,
/// whose bits must not depend on the number of threads) is computed by heed's kernels under `onednn` too, and so are attention's tiles: they are no
/// products of whole matrices. Error for `onednn` where oneDNN is not built in, or lost in a forked child.
class BackendGuard {
 public:
  [[nodiscard]] explicit BackendGuard(Backend);  ///< from here on
  ~BackendGuard();                               ///< the one before again
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  Backend before_;
};

namespace detail {
/// This thread's.
Backend backend();
}  // namespace detail

}  // namespace heed
