#include "cache_equivalence.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "../autograd/grad_mode.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed::nn {
namespace {

constexpr const char* name = "check_cache_equivalence";

struct Difference {
  Index position;
  double size;
};

/// The first position at which two outputs (B, T, ...) are further apart than `bound`.
std::optional<Difference> first_difference(const Tensor& a, const Tensor& b, double bound) {
  for (Index t = 0; t < a.size(1); ++t) {
    const std::vector<double> u = select(a, 1, t).to_vector<double>(), v = select(b, 1, t).to_vector<double>();
    double worst = 0;
    for (std::size_t i = 0; i < u.size(); ++i) {
      const double gap = u[i] == v[i] || (std::isnan(u[i]) && std::isnan(v[i])) ? 0 : std::fabs(u[i] - v[i]);
      worst = std::isnan(gap) ? HUGE_VAL : std::max(worst, gap);
    }
    if (worst > bound) return Difference{t, worst};
  }
  return {};
}

/// Random lengths >= 1 that sum to T; not all of 1 where that can be helped.
std::vector<Index> random_chunks(Index T, std::mt19937& bits) {
  std::vector<Index> chunks;
  for (Index left = T; left > 0; left -= chunks.back()) {
    const Index most = std::max<Index>(1, std::min(left, (T + 1) / 2 + 1));
    const Index least = chunks.empty() ? std::min<Index>(2, most) : 1;
    chunks.push_back(std::uniform_int_distribution<Index>(least, most)(bits));
  }
  return chunks;
}

}  // namespace

CacheReport check_cache_equivalence(const Decoder& whole, const std::function<Decoder()>& start, const Tensor& x) {
  if (x.dim() < 2) detail::raise<ShapeError>("{}: wants x of (B, T, ...): shape {}", name, x.shape());
  const NoGrad off;
  const Index T = x.size(1);
  const Tensor want = whole(x);
  if (want.dim() < 2 || want.size(1) != T)
    detail::raise<ShapeError>("{}: wants an output of (B, T, ...) for x {}: shape {}", name, x.shape(), want.shape());
  double largest = 0;
  for (double v : want.to_vector<double>())
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  if (first_difference(want, whole(x), 0))
    return {false, fmt::format("{}: FAILED: the model is not deterministic: two runs over the whole sequence differ (dropout in training?)", name),
            -1};

  const double bound = largest * (want.dtype() == f64 ? 1e-10 : 1e-4);
  std::mt19937 bits(1);
  std::vector<std::vector<Index>> plans = {std::vector<Index>(static_cast<std::size_t>(T), 1)};
  for (int i = 0; i < 3; ++i) plans.push_back(random_chunks(T, bits));
  for (const std::vector<Index>& plan : plans) {
    const Decoder decode = start();
    Index at = 0;
    for (Index length : plan) {
      const Tensor expected = slice(want, 1, at, at + length), got = decode(slice(x, 1, at, at + length));
      if (got.shape() != expected.shape())
        detail::raise<ShapeError>("{}: {} positions from {} on give {}, the whole sequence {}", name, length, at, got.shape(), expected.shape());
      if (const auto difference = first_difference(got, expected, bound))
        return {
            false,
            fmt::format("{}: FAILED: position {}, fed in a chunk of {} after {} cached positions, differs from the whole sequence by {:.3g} (largest "
                        "output {:.3g})",
                        name, at + difference->position, length, at, difference->size, largest),
            at + difference->position};
      at += length;
    }
  }
  std::string chunks;
  for (std::size_t i = 1; i < plans.size(); ++i) chunks += fmt::format("{}{}", i > 1 ? "; " : "", fmt::join(plans[i], "+"));
  return {true, fmt::format("{}: ok: {} positions, one at a time and in chunks of {}, as the whole sequence", name, T, chunks), -1};
}

}  // namespace heed::nn
