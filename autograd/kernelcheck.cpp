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

constexpr double epsilon32 = std::numeric_limits<float>::epsilon();

/// Outputs, then the gradient of each float input (undefined where nothing flows).
struct Results {
  std::vector<Tensor> outputs, gradients;
};

/// Relative changes of up to `amplitude`, other ones with every seed.
class Shaker {
 public:
  Shaker(double amplitude, std::uint64_t seed) : random_(seed), change_(-amplitude, amplitude), still_(amplitude == 0) {}
  void operator()(const Tensor& t) {
    if (still_) return;
    dispatch_float(t.dtype(), [&]<class T>() {
      T* x = Tensor(t).mutable_data<T>();
      for (Index i = 0; i < t.numel(); ++i) x[i] = static_cast<T>(static_cast<double>(x[i]) * (1 + change_(random_)));
    });
  }

 private:
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> change_;
  bool still_;
};

Results run(const FunctionOfList& fn, const std::vector<Tensor>& inputs, DType dtype, std::uint64_t seed, Shaker shake) {
  std::vector<Tensor> arguments, leaves;
  for (const Tensor& t : inputs) {
    if (!t.defined() || !is_float(t.dtype())) {
      arguments.push_back(t);
      continue;
    }
    leaves.push_back(arguments.emplace_back(t.detach().to(f32).to(dtype).contiguous().clone()));
    shake(leaves.back());
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
    shake(cotangents.back());
  }
  r.gradients.resize(leaves.size());
  if (!outputs.empty() && !leaves.empty()) r.gradients = grad(outputs, leaves, cotangents, {.allow_unused = true});
  return r;
}

/// A row may be 0 whatever the inputs, as the gradient of a query that sees one key only, where what is computed is a difference. It is measured
/// beside this part of the largest element of all.
constexpr double always_cancelled = 0.1;

/// What an error is measured in, for each row along the last dim: f32's epsilon times the largest magnitude, or the most that the row moves in f64
/// when inputs and cotangents change by that epsilon. Where terms cancel the second is the larger: no kernel can do better than to answer exactly for
/// inputs that it had to round.
std::vector<double> units(const Tensor& exact, const std::vector<Tensor>& shaken, std::size_t length) {
  const std::vector<double> b = exact.to_vector<double>();
  double largest = 0;
  for (double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  std::vector<double> unit(b.size() / length, std::max(always_cancelled * epsilon32 * largest, std::numeric_limits<double>::min()));
  for (std::size_t i = 0; i < b.size(); ++i)
    if (std::isfinite(b[i])) unit[i / length] = std::max(unit[i / length], epsilon32 * std::abs(b[i]));
  for (const Tensor& t : shaken) {
    const std::vector<double> s = t.to_vector<double>();
    for (std::size_t i = 0; i < b.size() && i < s.size(); ++i)
      if (std::isfinite(s[i] - b[i])) unit[i / length] = std::max(unit[i / length], std::abs(s[i] - b[i]));
  }
  return unit;
}

KernelcheckEntry compare(std::string name, const Tensor& single, const Tensor& exact, const std::vector<Tensor>& shaken, double bound) {
  KernelcheckEntry worst;
  worst.name = std::move(name), worst.bound = bound, worst.error = -1;
  const std::vector<double> a = single.to_vector<double>(), b = exact.to_vector<double>();
  const std::size_t length = std::max<std::size_t>(exact.dim() ? static_cast<std::size_t>(exact.shape().back()) : 1, 1);
  const std::vector<double> unit = units(exact, shaken, length);
  for (std::size_t i = 0; i < b.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    double error = same ? 0 : std::abs(a[i] - b[i]) / unit[i / length];
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (error <= worst.error) continue;
    worst.error = error, worst.f32_value = a[i], worst.f64_value = b[i];
    worst.index = exact.shape();
    for (std::size_t d = exact.shape().size(), rest = i; d-- > 0; rest /= static_cast<std::size_t>(exact.shape()[d]))
      worst.index[d] = static_cast<Index>(rest % static_cast<std::size_t>(exact.shape()[d]));
  }
  worst.error = std::max(worst.error, 0.0);
  worst.ok = worst.error <= bound;
  return worst;
}

}  // namespace

KernelcheckReport run_kernelcheck(const FunctionOfList& fn, const std::vector<Tensor>& inputs, const KernelcheckOptions& options) {
  const Results single = run(fn, inputs, f32, options.seed, {0, 0}), exact = run(fn, inputs, f64, options.seed, {0, 0});
  constexpr std::uint64_t shakes = 4;
  std::vector<Results> shaken;
  for (std::uint64_t i = 1; i <= shakes; ++i) shaken.push_back(run(fn, inputs, f64, options.seed, {epsilon32, options.seed + i}));
  KernelcheckReport report;
  const auto check = [&](std::string name, const auto& part) {
    const Tensor &a = part(single), &b = part(exact);
    if (!a.defined() || !b.defined()) return;
    std::vector<Tensor> moved;
    if (is_float(b.dtype()))
      for (const Results& r : shaken) moved.push_back(part(r));
    report.entries.push_back(compare(std::move(name), a, b, moved, options.tolerance));
  };
  for (std::size_t i = 0; i < exact.outputs.size(); ++i)
    check(fmt::format("output {}", i), [&](const Results& r) -> const Tensor& { return r.outputs[i]; });
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !is_float(inputs[i].dtype())) continue;
    const std::string name = inputs[i].name().empty() ? fmt::format("{}", i) : inputs[i].name();
    check("gradient of " + name, [&](const Results& r) -> const Tensor& { return r.gradients[next]; });
    ++next;
  }
  report.ok = std::all_of(report.entries.begin(), report.entries.end(), [](const KernelcheckEntry& e) { return e.ok; });
  report.message =
      fmt::format("kernelcheck: {}: f32 against f64, errors in units of what f32's epsilon does to the row\n", report.ok ? "ok" : "FAILED");
  report.message += fmt::format("  {:<20} {:>10} {:>10}  {:<16} {:>15} {:>15}\n", "result", "error", "bound", "worst at", "f32", "f64");
  for (const KernelcheckEntry& e : report.entries)
    report.message += fmt::format("  {:<20} {:>10.3g} {:>10.3g}  {:<16} {:>15.8g} {:>15.8g}{}\n", e.name, e.error, e.bound,
                                  fmt::format("{}", e.index), e.f32_value, e.f64_value, e.ok ? "" : "  too far");
  report.message.pop_back();
  return report;
}

}  // namespace heed::detail
