#include "gradcheck.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "../tensor/factory.h"
#include "../tensor/raise.h"
#include "backward.h"
#include "grad_mode.h"
#include "numeric_derivative.h"
#include "op.h"

namespace heed::detail {
namespace {

const char* text(Verdict v) {
  constexpr const char* texts[] = {"ok", "wrong", "kink", "nan"};
  return texts[static_cast<int>(v)];
}

void require_checkable(const NamedTensors& inputs, const GradcheckOptions& options) {
  for (const auto& [name, t] : inputs) {
    if (!t.defined()) raise<Error>("gradcheck: input {} is undefined", name);
    if (!is_float(t.dtype())) raise<DTypeError>("gradcheck: input {} is {}: only f64 (and f32) have derivatives", name, t.dtype());
    if (t.dtype() == f32 && !options.allow_f32)
      raise<DTypeError>("gradcheck: input {} is f32, whose differences have few digits: convert it to f64, or ask with allow_f32", name);
    if (!t.is_leaf())
      raise<GradError>("gradcheck: input {} is not a leaf but the output of {}: check the leaves it was made from, or detach it", name,
                       node_of(t)->name);
    if (overlaps_itself(t.ref()->layout))
      raise<ShapeError>("gradcheck: elements of input {} share memory (shape {}, strides {}), so that moving one moves others: make it contiguous",
                        name, t.shape(), t.strides());
  }
}

/// Gradients are asked for while a check runs.
class RequireGrads {
 public:
  explicit RequireGrads(const NamedTensors& inputs) {
    for (const auto& [name, t] : inputs)
      if (!t.requires_grad()) (turned_on_.emplace_back(t)).requires_grad_();
  }
  ~RequireGrads() {
    for (Tensor& t : turned_on_) t.requires_grad_(false);
  }
  RequireGrads(const RequireGrads&) = delete;
  RequireGrads& operator=(const RequireGrads&) = delete;

 private:
  std::vector<Tensor> turned_on_;
};

Dims unravel(Index element, const Dims& shape) {
  Dims index = shape;
  for (std::size_t d = shape.size(); d-- > 0; element /= shape[d]) index[d] = element % shape[d];
  return index;
}

void append(Values& all, const Tensor& t) {
  const Tensor flat = contiguous_data(t);
  const std::size_t at = all.size();
  all.resize(at + static_cast<std::size_t>(flat.numel()));
  dispatch_float(t.dtype(), [&]<class T>() { std::copy_n(flat.data<T>(), flat.numel(), all.begin() + static_cast<std::ptrdiff_t>(at)); });
}

class Check {
 public:
  Check(const CheckedFunction& fn, const NamedTensors& inputs, const GradcheckOptions& options)
      : fn_(fn), inputs_(inputs), options_(options), random_(options.seed) {}

  GradcheckReport run() {
    outputs_ = fn_();
    epsilon_ = std::numeric_limits<double>::epsilon();
    for (const auto& [name, t] : inputs_)
      if (t.dtype() == f32) epsilon_ = static_cast<double>(std::numeric_limits<float>::epsilon());
    for (const Tensor& t : outputs_) {
      if (!is_float(t.dtype())) raise<DTypeError>("gradcheck: an output is {}: only f64 (and f32) have derivatives", t.dtype());
      if (t.dtype() == f32) epsilon_ = static_cast<double>(std::numeric_limits<float>::epsilon());
    }
    evaluate_ = [this](Values& all) {
      const NoGrad off;
      all.clear();
      for (const Tensor& t : fn_()) append(all, t);
    };
    evaluate_(base_);
    Values again;
    evaluate_(again);
    if (again.size() != base_.size() || std::memcmp(again.data(), base_.data(), base_.size() * sizeof(double)) != 0)
      return refusal("the function is not deterministic: two calls with the same inputs gave different results (dropout in training?)");
    if (std::any_of(base_.begin(), base_.end(), [](double v) { return !std::isfinite(v); }))
      return refusal("the function itself gives NaN or infinity at these inputs");
    analytic_jacobian();
    for (std::size_t i = 0; i < inputs_.size(); ++i) compare(i);
    return finish();
  }

 private:
  GradcheckReport refusal(const char* why) {
    report_.ok = false;
    report_.message = fmt::format("gradcheck: FAILED: {}", why);
    return report_;
  }

  /// A random factor away from 0 and from 1.
  double factor() {
    const double u = std::uniform_real_distribution<>(0.5, 2.0)(random_);
    return std::bernoulli_distribution()(random_) ? u : -u;
  }

  /// jacobian_[i]: rows are outputs, columns the elements of input i. A row is one backward of one output element times a random factor, which is
  /// divided out again: a backward that is right only for a gradient of one shows.
  void analytic_jacobian() {
    std::vector<Tensor> leaves;
    for (const auto& [name, t] : inputs_) leaves.push_back(t);
    for (const Tensor& leaf : leaves) jacobian_.emplace_back(base_.size() * static_cast<std::size_t>(leaf.numel()), 0.0);
    std::size_t row = 0;
    for (const Tensor& out : outputs_) {
      if (!out.requires_grad()) {
        row += static_cast<std::size_t>(out.numel());
        continue;
      }
      for (Index j = 0; j < out.numel(); ++j, ++row) {
        Tensor seed = zeros(out.shape(), out.dtype());
        const double scale = factor();
        dispatch_float(out.dtype(), [&]<class T>() { seed.mutable_data<T>()[j] = static_cast<T>(scale); });
        const std::vector<Tensor> grads = grad({out}, leaves, {seed}, {.retain_graph = true, .allow_unused = true});
        for (std::size_t i = 0; i < leaves.size(); ++i) {
          if (!grads[i].defined()) continue;
          Values flat;
          append(flat, grads[i]);
          std::transform(flat.begin(), flat.end(), jacobian_[i].begin() + static_cast<std::ptrdiff_t>(row * flat.size()),
                         [scale](double g) { return g / scale; });
        }
      }
    }
  }

  struct Suspect {
    double ratio;  ///< error over tolerance
    std::size_t output;
    Index element;
    double analytic, numeric, error;
  };

  void compare(std::size_t i) {
    const Tensor& input = inputs_[i].second;
    const std::size_t columns = static_cast<std::size_t>(input.numel());
    double typical = 0;
    for (double v : input.to_vector<double>()) typical += v * v;
    typical = columns ? std::sqrt(typical / static_cast<double>(columns)) : 0;
    std::vector<Suspect> worst;
    NumericColumn column;
    for (Index element = 0; element < input.numel(); ++element) {
      Nudge nudge(input, element);
      column.measure(nudge, evaluate_, base_, step_for(nudge.value(), typical, epsilon_), epsilon_);
      Suspect s{-1, 0, element, 0, 0, 0};
      for (std::size_t o = 0; o < base_.size(); ++o) {
        const double analytic = jacobian_[i][o * columns + static_cast<std::size_t>(element)], numeric = column.derivative(o),
                     error = column.error(o);
        const double tolerance = error + 4 * epsilon_ * std::abs(analytic), gap = std::abs(analytic - numeric);
        const double ratio = gap <= tolerance  ? (tolerance > 0 ? gap / tolerance : 0)
                             : std::isnan(gap) ? std::numeric_limits<double>::infinity()
                                               : std::max(gap / tolerance, 1.01);
        if (ratio > s.ratio) s = {ratio, o, element, analytic, numeric, error};
      }
      checked_ += base_.size();
      if (s.ratio >= 0) worst.push_back(s);
    }
    std::sort(worst.begin(), worst.end(), [](const Suspect& a, const Suspect& b) { return a.ratio > b.ratio; });
    Summary& summary = summaries_.emplace_back(Summary{columns, 0, 0.0});
    for (const Suspect& s : worst) {
      Suspect final = s;
      Verdict verdict = Verdict::ok;
      if (s.ratio > 1) {
        Nudge nudge(input, s.element);
        verdict =
            judge(nudge, evaluate_, base_, step_for(nudge.value(), typical, epsilon_), epsilon_, s.output, s.analytic, final.numeric, final.error);
        if (std::isnan(s.analytic)) verdict = Verdict::nan;
      }
      summary.failed += verdict != Verdict::ok;
      const std::size_t listed = verdict == Verdict::ok ? 1 : options_.max_entries;
      if (summary.listed < listed) add_entry(i, final, verdict), ++summary.listed;
      if (s.ratio <= 1) break;
    }
  }

  void add_entry(std::size_t i, const Suspect& s, Verdict verdict) {
    GradcheckEntry e;
    e.name = inputs_[i].first;
    e.index = unravel(s.element, inputs_[i].second.shape());
    Index element = static_cast<Index>(s.output);
    while (element >= outputs_[e.output].numel()) element -= outputs_[e.output++].numel();
    e.output_index = unravel(element, outputs_[e.output].shape());
    e.analytic = s.analytic, e.numeric = s.numeric, e.estimated_error = s.error;
    e.abs_error = std::abs(s.analytic - s.numeric);
    const double larger = std::max(std::abs(s.analytic), std::abs(s.numeric));
    e.rel_error = larger > 0 ? e.abs_error / larger : e.abs_error;
    e.verdict = text(verdict);
    report_.entries.push_back(std::move(e));
  }

  GradcheckReport finish() {
    std::size_t failed = 0;
    for (const Summary& s : summaries_) failed += s.failed;
    report_.ok = failed == 0;
    std::stable_sort(report_.entries.begin(), report_.entries.end(),
                     [](const auto& a, const auto& b) { return (a.verdict != "ok") > (b.verdict != "ok"); });
    std::string& out = report_.message;
    out = fmt::format("gradcheck: {}: {} derivatives of {} outputs by {} inputs\n", report_.ok ? "ok" : "FAILED", checked_, base_.size(),
                      inputs_.size());
    std::size_t width = 5;
    for (const auto& [name, t] : inputs_) width = std::max(width, name.size());
    out += fmt::format("  {:<{}}  {:>8}  {:>8}  {:<14} {:>15} {:>15} {:>9} {:>9}  {}\n", "input", width, "elements", "wrong", "worst at", "analytic",
                       "numeric", "abs", "rel", "verdict");
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      bool first = true;
      for (const GradcheckEntry& e : report_.entries) {
        if (e.name != inputs_[i].first) continue;
        const std::string counts = first ? fmt::format("{:>8}  {:>8}", summaries_[i].elements, summaries_[i].failed) : fmt::format("{:>18}", "");
        out += fmt::format("  {:<{}}  {}  {:<14} {:>15.8g} {:>15.8g} {:>9.1e} {:>9.1e}  {}\n", first ? e.name : "", width, counts,
                           fmt::format("{}", e.index), e.analytic, e.numeric, e.abs_error, e.rel_error, e.verdict);
        first = false;
      }
      if (first) out += fmt::format("  {:<{}}  {:>8}  {:>8}  nothing to check\n", inputs_[i].first, width, summaries_[i].elements, 0);
    }
    out.pop_back();
    if (!report_.ok && std::none_of(outputs_.begin(), outputs_.end(), [](const Tensor& t) { return t.requires_grad(); }))
      out += "\n  No output has a history: was it detached, or computed under NoGrad?";
    return report_;
  }

  struct Summary {
    std::size_t elements, failed;
    double unused;
    std::size_t listed = 0;
  };

  const CheckedFunction& fn_;
  const NamedTensors& inputs_;
  const GradcheckOptions& options_;
  std::mt19937_64 random_;
  std::vector<Tensor> outputs_;
  Evaluate evaluate_;
  Values base_;
  double epsilon_ = 0;
  std::vector<Values> jacobian_;
  std::vector<Summary> summaries_;
  std::size_t checked_ = 0;
  GradcheckReport report_;
};

}  // namespace

GradcheckReport run_gradcheck(const CheckedFunction& fn, const NamedTensors& inputs, const GradcheckOptions& options) {
  require_checkable(inputs, options);
  const RequireGrads on(inputs);
  const GradModeScope mode(true);
  return Check(fn, inputs, options).run();
}

GradcheckReport run_gradgradcheck(const CheckedFunction& fn, const NamedTensors& inputs, const GradcheckOptions& options) {
  require_checkable(inputs, options);
  const RequireGrads on(inputs);
  NamedTensors all = inputs;
  std::mt19937_64 random(options.seed + 1);
  std::vector<Tensor> cotangents;
  for (const Tensor& out : fn()) {
    std::vector<double> values(static_cast<std::size_t>(out.numel()));
    for (double& v : values) v = std::normal_distribution<>()(random);
    cotangents.push_back(from_vector(values, out.shape()).to(out.dtype()));
    cotangents.back().requires_grad_();
    all.emplace_back(fmt::format("cotangent {}", cotangents.size() - 1), cotangents.back());
  }
  const std::vector<Tensor> leaves = tensors_of(inputs);
  const CheckedFunction gradients = [&] {
    const GradModeScope mode(true);  // the function under check is itself a backward
    std::vector<Tensor> outputs, seeds;
    const std::vector<Tensor> all_outputs = fn();
    for (std::size_t i = 0; i < all_outputs.size(); ++i)
      if (all_outputs[i].requires_grad()) outputs.push_back(all_outputs[i]), seeds.push_back(cotangents[i]);
    std::vector<Tensor> found = outputs.empty() ? std::vector<Tensor>() : grad(outputs, leaves, seeds, {.create_graph = true, .allow_unused = true});
    std::erase_if(found, [](const Tensor& t) { return !t.defined(); });
    return found;
  };
  return run_gradcheck(gradients, all, options);
}

NamedTensors numbered_leaves(const std::vector<Tensor>& inputs) {
  NamedTensors named;
  for (const Tensor& t : inputs) {
    const std::string name = t.defined() && !t.name().empty() ? t.name() : fmt::format("{}", named.size());
    named.emplace_back(name, t);
  }
  return named;
}

std::vector<Tensor> tensors_of(const NamedTensors& named) {
  std::vector<Tensor> out;
  for (const auto& [name, t] : named) out.push_back(t);
  return out;
}

}  // namespace heed::detail
