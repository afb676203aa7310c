#include "gradcheck.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "../tensor/factory.h"
#include "../tensor/raise.h"
#include "analytic_derivative.h"
#include "backward.h"
#include "blame.h"
#include "grad_mode.h"
#include "gradcheck_inputs.h"
#include "gradcheck_probes.h"
#include "gradcheck_report.h"
#include "nondeterminism.h"
#include "op.h"
#include "ops.h"

namespace heed::detail {
namespace {

constexpr double automatic_seconds = 10;  // predicted, up to which every element is looked at
constexpr std::size_t sample_cotangents = 2;

class Check {
 public:
  Check(const CheckedFunction& fn, const NamedTensors& inputs, const GradcheckOptions& options)
      : fn_(fn), inputs_(inputs), options_(options), random_(options.seed) {
    for (const auto& [name, t] : inputs_) leaves_.push_back(t);
  }

  GradcheckReport run() {
    const auto begin = std::chrono::steady_clock::now();
    outputs_ = fn_();
    epsilon_ = epsilon_of(f64);
    for (const Tensor& t : leaves_) epsilon_ = std::max(epsilon_, epsilon_of(t.dtype()));
    for (const Tensor& t : outputs_) {
      if (!is_float(t.dtype())) raise<DTypeError>("gradcheck: an output is {}: only f64 (and f32) have derivatives", t.dtype());
      epsilon_ = std::max(epsilon_, epsilon_of(t.dtype()));
    }
    Values once, again;
    evaluate(once);
    evaluate(again);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 3;
    if (!same_values(once, again, options_.nondet_tol)) return nondeterministic(Pass::forward);
    if (std::any_of(once.begin(), once.end(), [](double v) { return !std::isfinite(v); }))
      return report_.verdict = "nan", refusal("the function itself gives NaN or infinity at these inputs");
    count_ = once.size();
    if (!backward_repeats()) return nondeterministic(Pass::backward);

    analytic_.emplace(outputs_, leaves_);
    for (const auto& [name, t] : inputs_) parts_.inputs.push_back({name, t.numel()});
    choose(seconds);
    switch (mode_.kind()) {
      case GradcheckMode::Kind::full: full(); break;
      case GradcheckMode::Kind::directional: directional(); break;
      default: sampled(mode_.count());
    }
    return conclude();
  }

 private:
  GradcheckReport refusal(const std::string& why) {
    report_.ok = false;
    report_.message = fmt::format("gradcheck: FAILED: {}", why);
    return report_;
  }

  // Determinism

  enum class Pass { forward, backward };

  /// One random cotangent of the outputs.
  Values probe_cotangent() const {
    std::mt19937_64 random(options_.seed + 2);
    Values cotangent(count_);
    for (double& v : cotangent) v = std::normal_distribution<>()(random);
    return cotangent;
  }

  /// Whether backward gives the same three times: twice for the graph at hand, once for another that the same function records.
  bool backward_repeats() {
    const std::vector<Tensor> anew = fn_();
    require_as_first(anew);
    const Values cotangent = probe_cotangent();
    AnalyticDerivative first(outputs_, leaves_), second(anew, leaves_);
    const std::vector<Values>&a = first.along({cotangent})[0], &b = second.along({cotangent})[0];
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!same_values(a[i], b[i], options_.nondet_tol)) return false;
    return first.repeats(options_.nondet_tol);
  }

  /// The report of a function, or a backward, that gives other values each time: its formula may be right.
  GradcheckReport nondeterministic(Pass pass) {
    const auto in_one_graph = [&] {
      AnalyticDerivative(outputs_, leaves_).along({probe_cotangent()});
      return outputs_;
    };
    const auto anew = [&] {
      std::vector<Tensor> outputs = fn_();
      if (pass == Pass::backward) AnalyticDerivative(outputs, leaves_).along({probe_cotangent()});
      return outputs;
    };
    std::string where;
    for (int attempt = 0; attempt < 4 && where.empty(); ++attempt) {  // a race may hide
      where = first_difference(anew, options_.nondet_tol);
      if (where.empty() && pass == Pass::backward) where = first_difference(in_one_graph, options_.nondet_tol);
    }
    report_.entries.clear();
    report_.verdict = "nondeterministic";
    return refusal(fmt::format("nondeterministic: {} is not deterministic: two {} with the same inputs gave different results{}\n  {}",
                               pass == Pass::forward ? "the function" : "backward", pass == Pass::forward ? "calls" : "runs",
                               where.empty() ? "" : ", first in " + where,
                               "That is no verdict on the formula. Where random numbers are drawn, as by dropout in training: call manual_seed(...) "
                               "at the start of the function, "
                               "or pass training = false. Where sums are taken in any order: nondet_tol."));
  }

  static std::string in_words(const std::vector<Tensor>& outputs) {
    std::string text;
    for (const Tensor& t : outputs)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", t.defined() ? fmt::format("{} {}", t.dtype(), t.shape()) : "undefined");
    return text.empty() ? "none" : text;
  }

  void evaluate(Values& all) const {
    const NoGrad off;
    all.clear();
    const std::vector<Tensor> now = fn_();
    require_as_first(now);
    for (const Tensor& t : now) append(all, t);
  }

  void require_as_first(const std::vector<Tensor>& now) const {
    const auto as_first = [](const Tensor& a, const Tensor& b) { return a.defined() && a.dtype() == b.dtype() && a.shape() == b.shape(); };
    if (!std::equal(now.begin(), now.end(), outputs_.begin(), outputs_.end(), as_first))
      raise<Error>("gradcheck: the function's outputs change with its inputs: {} at first, {} near them", in_words(outputs_), in_words(now));
  }

  /// The values of `f` and what the last bits of the inputs do to them; `of_jitter` times nondet_tol is what two evaluations may differ by.
  Baseline look(const Evaluate& f, double of_jitter) {
    struct Moved : std::vector<std::unique_ptr<DirectionLine>> {
      ~Moved() { put_back(); }
      void put_back() {
        while (!empty()) pop_back();  // last first: the same tensor may be two inputs
      }
    } moved;
    Baseline base = baseline(f, epsilon_, [&](double t) {
      moved.put_back();
      if (t == 0) return;
      const NoGrad off;
      for (const Tensor& leaf : leaves_) {
        moved.push_back(std::make_unique<DirectionLine>(leaf, leaf.detach() * normal_like(leaf, random_)));
        moved.back()->move(t);
      }
    });
    base.jitter = options_.nondet_tol * of_jitter;
    return base;
  }

  // Modes

  /// `seconds` is what one evaluation takes; a backward is counted as three.
  void choose(double seconds) {
    Index elements = 0;
    for (const Tensor& t : leaves_) elements += t.numel();
    const double calls = 4.0 * static_cast<double>(elements) + 3.0 * static_cast<double>(count_);
    mode_ = options_.mode;
    if (mode_.kind() == GradcheckMode::Kind::automatic)
      mode_ = calls * seconds <= automatic_seconds ? GradcheckMode::full() : GradcheckMode::directional();
    const std::string size = fmt::format("{} elements of {} inputs by {} output elements", elements, inputs_.size(), count_);
    const char* chosen = options_.mode.kind() == GradcheckMode::Kind::automatic ? ", chosen" : "";
    switch (mode_.kind()) {
      case GradcheckMode::Kind::full: parts_.headline = fmt::format("{}, mode full{}", size, chosen); break;
      case GradcheckMode::Kind::directional:
        parts_.headline =
            fmt::format("{}, mode directional({}){}; full was predicted to take {:.0f} s", size, mode_.count(), chosen, calls * seconds);
        parts_.notes.push_back("Random directions only: an element that is wrong by far less than the typical one may pass.");
        break;
      default: parts_.headline = fmt::format("{}, mode sampled({}); full was predicted to take {:.2g} s", size, mode_.count(), calls * seconds);
    }
  }

  /// Every output element's row of the Jacobian by one backward, every input element's column by differences.
  void full() {
    const Evaluate all = [this](Values& v) { evaluate(v); };
    const std::vector<Values>& jacobian = analytic_->jacobian(random_);
    const Baseline base = look(all, 1);
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const std::size_t columns = static_cast<std::size_t>(leaves_[i].numel());
      InputProbes asked{std::vector<Probe>(columns), Values(count_), [&, i](const Probe& p, Values& analytic) {
                          for (std::size_t o = 0; o < count_; ++o) analytic[o] = jacobian[i][o * columns + static_cast<std::size_t>(p.element)];
                        }};
      for (std::size_t o = 0; o < count_; ++o)
        for (std::size_t e = 0; e < columns; ++e) asked.largest[o] = std::max(asked.largest[o], std::abs(jacobian[i][o * columns + e]));
      for (std::size_t e = 0; e < columns; ++e) asked.probes[e] = {static_cast<Index>(e), {}, 0, count_};
      parts_.inputs[i].looked_at = leaves_[i].numel();
      enter(i, judged(i, asked, all, base), [this](std::size_t o) { return output_text(o); });
    }
  }

  /// Derivatives along random directions.
  void directional() {
    const auto cotangents = random_cotangents(static_cast<std::size_t>(mode_.count()));
    const AnalyticDerivative::Gradients& gradients = analytic_->along(cotangents);
    const Evaluate sums = projected(cotangents);
    const Baseline base = look(sums, largest_sum(cotangents));
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i].numel() == 0) continue;
      InputProbes asked{{}, Values(cotangents.size()), [&, i](const Probe& p, Values& analytic) {
                          const Values u = p.direction.to_vector<double>();
                          analytic[p.first_value] = std::inner_product(u.begin(), u.end(), gradients[p.first_value][i].begin(), 0.0);
                        }};
      double largest = 0;  // along directions of this kind, for cotangents of this kind
      for (std::size_t c = 0; c < cotangents.size(); ++c) {
        const Values& g = gradients[c][i];
        asked.probes.push_back({0, normal_like(leaves_[i], random_), c, c + 1});
        largest = std::max(largest, std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0)));
      }
      asked.largest.assign(cotangents.size(), largest);
      std::vector<Finding> found = judged(i, asked, sums, base);
      parts_.inputs[i].looked_at = leaves_[i].numel();
      if (found.empty()) continue;
      found.resize(1);
      enter(i, found, cotangent_text);
      if (found[0].judgment.verdict != Verdict::ok && found[0].judgment.verdict != Verdict::undecided) sample_input(i, 256, cotangents, gradients);
    }
  }

  /// Random elements of each input.
  void sampled(Index n) {
    const auto cotangents = random_cotangents(sample_cotangents);
    const AnalyticDerivative::Gradients& gradients = analytic_->along(cotangents);
    for (std::size_t i = 0; i < leaves_.size(); ++i) parts_.inputs[i].looked_at = sample_input(i, n, cotangents, gradients);
    for (const InputSummary& s : parts_.inputs)
      if (s.looked_at < s.elements)
        parts_.notes.push_back(fmt::format("{}: {} of {} elements were not checked", s.name, s.elements - s.looked_at, s.elements));
  }

  Index sample_input(std::size_t i, Index n, const std::vector<Values>& cotangents, const AnalyticDerivative::Gradients& gradients) {
    std::vector<Index> elements(static_cast<std::size_t>(leaves_[i].numel())), chosen;
    std::iota(elements.begin(), elements.end(), 0);
    std::sample(elements.begin(), elements.end(), std::back_inserter(chosen), n, random_);
    const Evaluate some = projected(cotangents);
    const Baseline base = look(some, largest_sum(cotangents));
    InputProbes asked{{}, Values(cotangents.size()), [&, i](const Probe& p, Values& analytic) {
                        for (std::size_t c = 0; c < analytic.size(); ++c) analytic[c] = gradients[c][i][static_cast<std::size_t>(p.element)];
                      }};
    for (std::size_t c = 0; c < cotangents.size(); ++c)
      for (double g : gradients[c][i]) asked.largest[c] = std::max(asked.largest[c], std::abs(g));
    for (Index element : chosen) asked.probes.push_back({element, {}, 0, cotangents.size()});
    enter(i, judged(i, asked, some, base), cotangent_text);
    return static_cast<Index>(chosen.size());
  }

  std::vector<Finding> judged(std::size_t i, const InputProbes& asked, const Evaluate& values, const Baseline& base) {
    return InputJudge(fn_, inputs_[i], options_, parts_.inputs[i], parts_.notes).judge_all(asked, values, base);
  }

  static std::string cotangent_text(std::size_t c) { return fmt::format("cotangent {}", c); }

  // Concluding

  /// Entries for the report, of findings that are sorted.
  template <class OutputText>
  void enter(std::size_t i, const std::vector<Finding>& found, OutputText output_name) {
    InputSummary& summary = parts_.inputs[i];
    std::size_t listed = 0;
    for (const Finding& f : found) {
      const Verdict v = f.judgment.verdict;
      if (f.right() && (listed > 0 || summary.wrong > 0)) break;
      parts_.worst = std::max(parts_.worst, v, [](Verdict a, Verdict b) { return severity(a) < severity(b); });
      if (v == Verdict::undecided)
        ++summary.undecided;
      else if (!f.right())
        ++summary.wrong;
      if (v == Verdict::kink) ++summary.kinks;
      if (f.right() || listed < options_.max_entries)
        report_.entries.push_back(make_entry(inputs_[i].first, f.probe.direction.defined() ? Dims{} : unravel(f.probe.element, leaves_[i].shape()),
                                             output_name(f.value), f.analytic, f.judgment));
      ++listed;
      if (f.right()) break;
    }
  }

  GradcheckReport conclude() {
    for (const InputSummary& s : parts_.inputs)
      if (s.looked_at > 0 && count_ > 0 && !s.has_effect)
        parts_.notes.push_back(fmt::format("input {} has no effect on any output: is it the one that the function uses?", s.name));
    finish(report_, parts_, options_);
    if (severity(parts_.worst) <= severity(Verdict::undecided)) return report_;
    if (!analytic_->repeats(2 * options_.nondet_tol)) return nondeterministic(Pass::backward);
    if (outputs_.empty() || std::none_of(outputs_.begin(), outputs_.end(), [](const Tensor& t) { return t.requires_grad(); }))
      report_.message += "\n  No output has a history: was it detached, or computed under NoGrad?";
    const bool only_kinks = std::all_of(parts_.inputs.begin(), parts_.inputs.end(), [](const InputSummary& s) { return s.wrong == s.kinks; });
    if (only_kinks)
      report_.message += "\n  At a kink the derivatives from both sides differ, and no gradient is right: choose inputs away from it.";
    else if (options_.locate)
      report_.message += "\n  " + blame(fn_, inputs_, options_.seed);
    return report_;
  }

  std::vector<Values> random_cotangents(std::size_t count) {
    std::vector<Values> all(count, Values(count_));
    for (Values& v : all)
      for (double& x : v) x = std::normal_distribution<>()(random_);
    return all;
  }

  /// What a number added to all outputs adds to their product with a cotangent, at most.
  static double largest_sum(const std::vector<Values>& cotangents) {
    double largest = 0;
    for (const Values& c : cotangents)
      largest = std::max(largest, std::accumulate(c.begin(), c.end(), 0.0, [](double sum, double x) { return sum + std::abs(x); }));
    return largest;
  }

  /// The outputs' product with each cotangent.
  Evaluate projected(std::vector<Values> cotangents) const {
    return [this, cotangents = std::move(cotangents), outputs = Values()](Values& values) mutable {
      evaluate(outputs);
      values.clear();
      for (const Values& c : cotangents) values.push_back(std::inner_product(outputs.begin(), outputs.end(), c.begin(), 0.0));
    };
  }

  std::string output_text(std::size_t element) const {
    std::size_t output = 0;
    Index rest = static_cast<Index>(element);
    while (rest >= outputs_[output].numel()) rest -= outputs_[output++].numel();
    const std::string at = fmt::format("{}", unravel(rest, outputs_[output].shape()));
    return outputs_.size() == 1 ? at : fmt::format("{}: {}", output, at);
  }

  const CheckedFunction& fn_;
  const NamedTensors& inputs_;
  const GradcheckOptions& options_;
  std::mt19937_64 random_;
  std::vector<Tensor> leaves_, outputs_;
  std::optional<AnalyticDerivative> analytic_;
  std::size_t count_ = 0;  // of output elements
  double epsilon_ = 0;
  GradcheckMode mode_;
  ReportParts parts_;
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
  std::vector<Tensor> leaves, cotangents;
  for (const auto& [name, t] : inputs) leaves.push_back(t);
  std::mt19937_64 random(options.seed + 1);
  for (const Tensor& out : fn()) {
    std::vector<double> values(static_cast<std::size_t>(out.numel()));
    for (double& v : values) v = std::normal_distribution<>()(random);
    cotangents.push_back(from_vector(values, out.shape()).to(out.dtype()));
    all.emplace_back(fmt::format("cotangent {}", cotangents.size() - 1), cotangents.back());
  }
  for (Tensor& t : cotangents) t.requires_grad_();
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

}  // namespace heed::detail
