#include "kernelcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "../tensor/factory.h"
#include "../tensor/raise.h"
#include "backward.h"
#include "grad_mode.h"

namespace heed::detail {
namespace {

/// Outputs, then the gradient of each float input (undefined where nothing flows).
struct Results {
  std::vector<Tensor> outputs, gradients;
};

Results run(const FunctionOfList& fn, const std::vector<Tensor>& inputs, DType dtype, std::uint64_t seed) {
  std::vector<Tensor> arguments, leaves;
  for (const Tensor& t : inputs) {
    if (!t.defined() || !is_float(t.dtype())) {
      arguments.push_back(t);
      continue;
    }
    leaves.push_back(arguments.emplace_back(t.detach().to(f32).to(dtype).clone()));
    leaves.back().requires_grad_();
  }
  const GradModeScope on(true);
  Results r;
  r.outputs = fn(arguments);
  std::mt19937_64 random(seed);
  std::vector<Tensor> outputs, cotangents;
  for (const Tensor& out : r.outputs) {
    if (!out.requires_grad()) continue;
    std::vector<float> values(static_cast<std::size_t>(out.numel()));
    for (float& v : values) v = std::normal_distribution<float>()(random);
    outputs.push_back(out);
    cotangents.push_back(from_vector(values, out.shape()).to(dtype));
  }
  r.gradients.resize(leaves.size());
  if (!outputs.empty() && !leaves.empty()) r.gradients = grad(outputs, leaves, cotangents, {.allow_unused = true});
  return r;
}

/// A row that is smaller than this is what is left of terms that cancelled: its errors are those of the terms, which are about 1 like the cotangents.
constexpr double cancelled = 1e-5;

KernelcheckEntry compare(std::string name, const Tensor& single, const Tensor& exact, double bound) {
  KernelcheckEntry worst;
  worst.name = std::move(name), worst.bound = bound, worst.error = -1;
  const std::vector<double> a = single.to_vector<double>(), b = exact.to_vector<double>();
  const std::size_t length = std::max<std::size_t>(exact.dim() ? static_cast<std::size_t>(exact.shape().back()) : 1, 1);
  double overall = 0;
  for (double v : b)
    if (std::isfinite(v)) overall = std::max(overall, std::abs(v));
  for (std::size_t begin = 0; begin < b.size(); begin += length) {
    double largest = 0.01 * overall;
    for (std::size_t i = begin; i < begin + length; ++i)
      if (std::isfinite(b[i])) largest = std::max(largest, std::abs(b[i]));
    for (std::size_t i = begin; i < begin + length; ++i) {
      const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
      const double unit = (largest > cancelled ? largest : 1.0) * static_cast<double>(std::numeric_limits<float>::epsilon());
      double error = same ? 0 : std::abs(a[i] - b[i]) / unit;
      if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
      if (error <= worst.error) continue;
      worst.error = error, worst.f32_value = a[i], worst.f64_value = b[i];
      worst.index = exact.shape();
      for (std::size_t d = exact.shape().size(), rest = i; d-- > 0; rest /= static_cast<std::size_t>(exact.shape()[d]))
        worst.index[d] = static_cast<Index>(rest % static_cast<std::size_t>(exact.shape()[d]));
    }
  }
  worst.error = std::max(worst.error, 0.0);
  worst.ok = worst.error <= bound;
  return worst;
}

}  // namespace

KernelcheckReport run_kernelcheck(const FunctionOfList& fn, const std::vector<Tensor>& inputs, const KernelcheckOptions& options) {
  const Results single = run(fn, inputs, f32, options.seed), exact = run(fn, inputs, f64, options.seed);
  Index longest = 1;
  for (const Tensor& t : inputs)
    if (t.defined()) longest = std::max(longest, t.numel());
  for (const Tensor& t : exact.outputs) longest = std::max(longest, t.numel());
  const double bound = options.tolerance * std::sqrt(static_cast<double>(longest));

  KernelcheckReport report;
  const auto check = [&](std::string name, const Tensor& a, const Tensor& b) {
    if (a.defined() && b.defined()) report.entries.push_back(compare(std::move(name), a, b, bound));
  };
  for (std::size_t i = 0; i < exact.outputs.size(); ++i) check(fmt::format("output {}", i), single.outputs[i], exact.outputs[i]);
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !is_float(inputs[i].dtype())) continue;
    const std::string name = inputs[i].name().empty() ? fmt::format("{}", i) : inputs[i].name();
    check("gradient of " + name, single.gradients[next], exact.gradients[next]);
    ++next;
  }
  report.ok = std::all_of(report.entries.begin(), report.entries.end(), [](const KernelcheckEntry& e) { return e.ok; });
  report.message = fmt::format("kernelcheck: {}: f32 against f64, errors in units of f32's epsilon times the row's largest magnitude\n",
                               report.ok ? "ok" : "FAILED");
  report.message += fmt::format("  {:<20} {:>10} {:>10}  {:<16} {:>15} {:>15}\n", "result", "error", "bound", "worst at", "f32", "f64");
  for (const KernelcheckEntry& e : report.entries)
    report.message += fmt::format("  {:<20} {:>10.3g} {:>10.3g}  {:<16} {:>15.8g} {:>15.8g}{}\n", e.name, e.error, e.bound,
                                  fmt::format("{}", e.index), e.f32_value, e.f64_value, e.ok ? "" : "  too far");
  report.message.pop_back();
  return report;
}

}  // namespace heed::detail
