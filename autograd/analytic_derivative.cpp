#include "analytic_derivative.h"

#include <algorithm>
#include <cmath>

#include "../tensor/factory.h"
#include "backward.h"
#include "gradcheck_inputs.h"

namespace heed::detail {

bool same_values(const Values& a, const Values& b, double tolerance) {
  const auto same = [tolerance](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= tolerance; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

const std::vector<Values>& AnalyticDerivative::jacobian(std::mt19937_64& random) {
  anew_ = [this, before = random] {
    std::mt19937_64 same_again = before;
    return Gradients{fresh_jacobian(same_again)};
  };
  last_ = {fresh_jacobian(random)};
  return last_[0];
}

const AnalyticDerivative::Gradients& AnalyticDerivative::along(const std::vector<Values>& cotangents) {
  anew_ = [this, cotangents] { return fresh_along(cotangents); };
  return last_ = anew_();
}

bool AnalyticDerivative::repeats(double tolerance) const {
  if (!anew_) return true;
  const Gradients now = anew_();
  for (std::size_t c = 0; c < now.size(); ++c)
    for (std::size_t i = 0; i < now[c].size(); ++i)
      if (!same_values(now[c][i], last_[c][i], tolerance)) return false;
  return true;
}

std::vector<Values> AnalyticDerivative::fresh_jacobian(std::mt19937_64& random) const {
  std::size_t rows = 0;
  for (const Tensor& out : outputs_) rows += static_cast<std::size_t>(out.numel());
  std::vector<Values> jacobian;
  for (const Tensor& leaf : leaves_) jacobian.emplace_back(rows * static_cast<std::size_t>(leaf.numel()), 0.0);
  std::size_t row = 0;
  Values flat;
  for (const Tensor& out : outputs_) {
    for (Index j = 0; j < out.numel(); ++j, ++row) {
      if (!out.requires_grad()) continue;
      Tensor seed = zeros(out.shape(), out.dtype());
      const double scale = std::uniform_real_distribution<>(0.5, 2.0)(random) * (std::bernoulli_distribution()(random) ? 1 : -1);
      dispatch_float(out.dtype(), [&]<class T>() { seed.mutable_data<T>()[j] = static_cast<T>(scale); });
      const std::vector<Tensor> grads = grad({out}, leaves_, {seed}, {.retain_graph = true, .allow_unused = true});
      for (std::size_t i = 0; i < leaves_.size(); ++i) {
        if (!grads[i].defined()) continue;
        flat.clear();
        append(flat, grads[i]);
        std::transform(flat.begin(), flat.end(), jacobian[i].begin() + static_cast<std::ptrdiff_t>(row * flat.size()),
                       [scale](double g) { return g / scale; });
      }
    }
  }
  return jacobian;
}

AnalyticDerivative::Gradients AnalyticDerivative::fresh_along(const std::vector<Values>& cotangents) const {
  Gradients all;
  for (const Values& cotangent : cotangents) {
    std::vector<Tensor> outputs, seeds;
    auto at = cotangent.begin();
    for (const Tensor& out : outputs_) {
      const auto end = at + static_cast<std::ptrdiff_t>(out.numel());
      if (out.requires_grad()) outputs.push_back(out), seeds.push_back(from_vector(std::vector<double>(at, end), out.shape()).to(out.dtype()));
      at = end;
    }
    std::vector<Tensor> grads(leaves_.size());
    if (!outputs.empty()) grads = grad(outputs, leaves_, seeds, {.retain_graph = true, .allow_unused = true});
    std::vector<Values>& row = all.emplace_back();
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      Values& g = row.emplace_back();
      if (grads[i].defined())
        append(g, grads[i]);
      else
        g.assign(static_cast<std::size_t>(leaves_[i].numel()), 0.0);
    }
  }
  return all;
}

}  // namespace heed::detail
