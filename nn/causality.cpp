#include "causality.h"

#include <cmath>

#include "../autograd/backward.h"
#include "../autograd/grad_mode.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"
#include "../tensor/random.h"

namespace heed::nn {
namespace {

/// First position of a (B, T, ...) tensor before `end` where a and b differ in a bit, or -1.
Index first_difference(const Tensor& a, const Tensor& b, Index end) {
  for (Index t = 0; t < end; ++t) {
    const std::vector<double> u = select(a, 1, t).to_vector<double>(), v = select(b, 1, t).to_vector<double>();
    for (std::size_t i = 0; i < u.size(); ++i)
      if (u[i] != v[i] && !(std::isnan(u[i]) && std::isnan(v[i]))) return t;
  }
  return -1;
}

/// x with the positions from `begin` on replaced by those of `other`.
Tensor with_future(const Tensor& x, const Tensor& other, Index begin) { return cat({slice(x, 1, 0, begin), slice(other, 1, begin, x.size(1))}, 1); }

/// Puts the random numbers back to where they were: a check changes nothing.
struct KeepRandom {
  RngState state = rng_state();
  ~KeepRandom() { set_rng_state(state); }
};

CausalityReport leak(Index query, Index key, const std::string& how) {
  return {false, fmt::format("check_causality: FAILED: the output at position {} depends on the later input at position {}: {}", query, key, how),
          query, key};
}

}  // namespace

CausalityReport check_causality(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
  if (x.dim() != 3) detail::raise<ShapeError>("check_causality: wants x of (B, T, C): shape {}", x.shape());
  if (!detail::is_float(x.dtype())) detail::raise<DTypeError>("check_causality: wants f32 or f64, not {}", x.dtype());
  const KeepRandom keep;
  const Index T = x.size(1);
  Tensor leaf = x.detach().clone();
  leaf.requires_grad_();
  Tensor y;
  {
    const detail::GradModeScope on(true);
    y = fn(leaf);
  }
  if (y.dim() < 2 || y.size(0) != x.size(0) || y.size(1) != T)
    detail::raise<ShapeError>("check_causality: wants an output of (B, T, ...) for x {}: shape {}", x.shape(), y.shape());

  // A random cotangent at one position: a dependence that cancels for it has probability 0.
  for (Index query = 0; y.requires_grad() && query < T; ++query) {
    const detail::GradModeScope on(true);
    const Tensor at = select(y, 1, query);
    const Tensor g = grad({at}, {leaf}, {randn(at.shape(), at.dtype())}, {.retain_graph = true, .allow_unused = true})[0];
    if (!g.defined()) continue;
    for (Index key = query + 1; key < T; ++key) {
      const double largest = g.numel() ? max(abs(select(g, 1, key))).item<double>() : 0;
      if (largest != 0) return leak(query, key, fmt::format("the Jacobian there is not 0 but reaches {:.3g} in size", largest));
    }
  }

  const NoGrad off;
  const double huge = x.dtype() == f64 ? 1e30 : 1e15;
  const std::pair<const char*, Tensor> futures[] = {
      {"other random values", randn(x.shape(), x.dtype())}, {"their negatives", -x.detach()}, {"huge values", full(x.shape(), huge, x.dtype())}};
  const Tensor before = fn(x.detach());
  for (Index key = 1; key < T; ++key)
    for (const auto& [name, future] : futures) {
      const Index query = first_difference(before, fn(with_future(x.detach(), future, key)), key);
      if (query >= 0) return leak(query, key, fmt::format("its bits change when the inputs from there on become {}", name));
    }
  return {true,
          fmt::format("check_causality: ok: {} positions; the Jacobian above the diagonal is exactly 0, and earlier outputs keep their bits when "
                      "later inputs change",
                      T),
          -1, -1};
}

}  // namespace heed::nn
