#include "gradcheck.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "../tensor/factory.h"
#include "../tensor/raise.h"
#include "backward.h"
#include "blame.h"
#include "grad_mode.h"
#include "gradcheck_report.h"
#include "op.h"
#include "ops.h"

namespace heed::detail {
namespace {

constexpr double automatic_seconds = 10;  // predicted, up to which every element is looked at
constexpr std::size_t sample_cotangents = 2;

/// Whether two tensors that are not one and the same lie in overlapping stretches of one storage.
bool share_memory(const Tensor& a, const Tensor& b) {
  if (a.id() == b.id() || !(a.ref()->storage == b.ref()->storage) || a.numel() == 0 || b.numel() == 0) return false;
  const auto last = [](const Tensor& t) {
    Index at = t.ref()->layout.offset;
    for (std::size_t d = 0; d < t.shape().size(); ++d) at += (t.shape()[d] - 1) * t.strides()[d];
    return at;
  };
  return a.ref()->layout.offset <= last(b) && b.ref()->layout.offset <= last(a);
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
    for (const auto& [other_name, other] : inputs) {
      if (&other == &t) break;
      if (share_memory(t, other))
        raise<ShapeError>("gradcheck: inputs {} and {} share memory, so that moving one moves the other: clone one of them", other_name, name);
    }
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

double epsilon_of(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
}

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
    const auto same_bits = [](double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); };
    if (!std::equal(again.begin(), again.end(), once.begin(), once.end(), same_bits))
      return refusal("the function is not deterministic: two calls with the same inputs gave different results (dropout in training?)");
    if (std::any_of(once.begin(), once.end(), [](double v) { return !std::isfinite(v); }))
      return refusal("the function itself gives NaN or infinity at these inputs");
    count_ = once.size();

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
  GradcheckReport refusal(const char* why) {
    report_.message = fmt::format("gradcheck: FAILED: {}", why);
    return report_;
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
    const auto as_first = [](const Tensor& a, const Tensor& b) { return a.defined() && a.dtype() == b.dtype() && a.shape() == b.shape(); };
    if (!std::equal(now.begin(), now.end(), outputs_.begin(), outputs_.end(), as_first))
      raise<Error>("gradcheck: the function's outputs change with its inputs: {} at first, {} near them", in_words(outputs_), in_words(now));
    for (const Tensor& t : now) append(all, t);
  }

  /// The values of `f` and what the last bits of the inputs do to them.
  Baseline look(const Evaluate& f) {
    struct Moved : std::vector<std::unique_ptr<DirectionLine>> {
      ~Moved() { put_back(); }
      void put_back() {
        while (!empty()) pop_back();  // last first: the same tensor may be two inputs
      }
    } moved;
    return baseline(f, epsilon_, [&](double t) {
      moved.put_back();
      if (t == 0) return;
      const NoGrad off;
      for (const Tensor& leaf : leaves_) {
        moved.push_back(std::make_unique<DirectionLine>(leaf, leaf.detach() * normal_like(leaf)));
        moved.back()->move(t);
      }
    });
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
    const std::vector<Values> jacobian = analytic_jacobian();
    const Evaluate all = [this](Values& v) { evaluate(v); };
    const Baseline base = look(all);
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const std::size_t columns = static_cast<std::size_t>(leaves_[i].numel());
      const double typical = typical_size(leaves_[i]);
      NumericColumn column;
      std::vector<Suspect> found;
      for (Index element = 0; element < leaves_[i].numel(); ++element) {
        ElementLine line(leaves_[i], element);
        column.measure(line, all, base, step_for(line.start(), typical, epsilon_));
        Suspect worst{-1, element, 0, 0, {}};
        for (std::size_t o = 0; o < count_; ++o) worst.consider(column, o, jacobian[i][o * columns + static_cast<std::size_t>(element)], epsilon_);
        if (worst.ratio >= 0) found.push_back(worst);
      }
      parts_.inputs[i].looked_at = leaves_[i].numel();
      settle(i, std::move(found), all, base, [this](std::size_t o) { return output_text(o); });
    }
  }

  /// Derivatives along random directions.
  void directional() {
    const auto cotangents = random_cotangents(static_cast<std::size_t>(mode_.count()));
    const std::vector<std::vector<Values>> gradients = gradients_for(cotangents);
    const Evaluate sums = projected(cotangents);
    const Baseline base = look(sums);
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i].numel() == 0) continue;
      const double typical = typical_size(leaves_[i]);
      bool failed = false;
      Suspect worst{-1, 0, 0, 0, {}};
      for (std::size_t c = 0; c < cotangents.size(); ++c) {
        const Tensor direction = normal_like(leaves_[i]);
        const Values u = direction.to_vector<double>();
        const double analytic = std::inner_product(u.begin(), u.end(), gradients[c][i].begin(), 0.0);
        DirectionLine line(leaves_[i], direction);
        NumericColumn column;
        column.measure(line, sums, base, step_for(0, typical, epsilon_));
        Suspect s{-1, 0, c, 0, {}};
        s.consider(column, c, analytic, epsilon_);
        if (s.ratio > 1) s.judgment = judge(line, sums, base, step_for(0, typical, epsilon_), c, analytic);
        failed |= s.judgment.verdict != Verdict::ok;
        parts_.inputs[i].has_effect |= s.has_effect;
        if (s.ratio > worst.ratio) worst = s;
      }
      parts_.inputs[i].looked_at = leaves_[i].numel();
      if (!failed) {
        report_.entries.push_back(make_entry(inputs_[i].first, {}, fmt::format("cotangent {}", worst.value), worst.analytic, worst.judgment));
        continue;
      }
      ++parts_.inputs[i].wrong;
      if (worst.judgment.verdict == Verdict::kink) ++parts_.inputs[i].kinks;
      report_.entries.push_back(make_entry(inputs_[i].first, {}, fmt::format("cotangent {}", worst.value), worst.analytic, worst.judgment));
      sample_input(i, 256, cotangents, gradients);
    }
  }

  /// Random elements of each input.
  void sampled(Index n) {
    const auto cotangents = random_cotangents(sample_cotangents);
    const std::vector<std::vector<Values>> gradients = gradients_for(cotangents);
    for (std::size_t i = 0; i < leaves_.size(); ++i) parts_.inputs[i].looked_at = sample_input(i, n, cotangents, gradients);
    for (const InputSummary& s : parts_.inputs)
      if (s.looked_at < s.elements)
        parts_.notes.push_back(fmt::format("{}: {} of {} elements were not checked", s.name, s.elements - s.looked_at, s.elements));
  }

  Index sample_input(std::size_t i, Index n, const std::vector<Values>& cotangents, const std::vector<std::vector<Values>>& gradients) {
    std::vector<Index> elements(static_cast<std::size_t>(leaves_[i].numel())), chosen;
    std::iota(elements.begin(), elements.end(), 0);
    std::sample(elements.begin(), elements.end(), std::back_inserter(chosen), n, random_);
    const Evaluate some = projected(cotangents);
    const Baseline base = look(some);
    const double typical = typical_size(leaves_[i]);
    NumericColumn column;
    std::vector<Suspect> found;
    for (Index element : chosen) {
      ElementLine line(leaves_[i], element);
      column.measure(line, some, base, step_for(line.start(), typical, epsilon_));
      Suspect worst{-1, element, 0, 0, {}};
      for (std::size_t c = 0; c < cotangents.size(); ++c) worst.consider(column, c, gradients[c][i][static_cast<std::size_t>(element)], epsilon_);
      found.push_back(worst);
    }
    settle(i, std::move(found), some, base, [](std::size_t c) { return fmt::format("cotangent {}", c); });
    return static_cast<Index>(chosen.size());
  }

  // Comparing

  /// The value of a column whose analytic derivative is furthest outside the numeric one's error.
  struct Suspect {
    double ratio;  // gap over tolerance
    Index element;
    std::size_t value;
    double analytic;
    Judgment judgment;
    bool has_effect = false;

    void consider(const NumericColumn& column, std::size_t v, double exact, double epsilon) {
      const double numeric = column.derivative(v), error = column.error(v), gap = std::abs(exact - numeric);
      const double tolerance = error + 4 * epsilon * std::abs(exact);
      has_effect |= exact != 0 || numeric != 0;
      const double r = std::isnan(gap) ? std::numeric_limits<double>::infinity() : gap == 0 ? 0 : gap / tolerance;
      if (r > ratio) ratio = r, value = v, analytic = exact, judgment = {r > 1 ? Verdict::wrong : Verdict::ok, numeric, error};
    }
  };

  /// Second thoughts on what lies outside, worst first, and entries for the report.
  template <class OutputText>
  void settle(std::size_t i, std::vector<Suspect> found, const Evaluate& values, const Baseline& base, OutputText output_name) {
    std::sort(found.begin(), found.end(), [](const Suspect& a, const Suspect& b) { return a.ratio > b.ratio; });
    const double typical = typical_size(leaves_[i]);
    std::size_t listed = 0;
    const Suspect* best_right = nullptr;
    for (const Suspect& s : found) parts_.inputs[i].has_effect |= s.has_effect;
    for (Suspect& s : found) {
      if (s.ratio > 1) {
        ElementLine line(leaves_[i], s.element);
        s.judgment = judge(line, values, base, step_for(line.start(), typical, epsilon_), s.value, s.analytic);
      }
      if (s.judgment.verdict == Verdict::ok) {
        if (!best_right) best_right = &s;
        if (s.ratio <= 1) break;
        continue;
      }
      ++parts_.inputs[i].wrong;
      if (s.judgment.verdict == Verdict::kink) ++parts_.inputs[i].kinks;
      if (listed++ < options_.max_entries)
        report_.entries.push_back(make_entry(inputs_[i].first, unravel(s.element, leaves_[i].shape()), output_name(s.value), s.analytic, s.judgment));
    }
    if (best_right && parts_.inputs[i].wrong == 0)
      report_.entries.push_back(make_entry(inputs_[i].first, unravel(best_right->element, leaves_[i].shape()), output_name(best_right->value),
                                           best_right->analytic, best_right->judgment));
  }

  GradcheckReport conclude() {
    for (const InputSummary& s : parts_.inputs)
      if (s.looked_at > 0 && count_ > 0 && !s.has_effect)
        parts_.notes.push_back(fmt::format("input {} has no effect on any output: is it the one that the function uses?", s.name));
    finish(report_, parts_);
    if (report_.ok) return report_;
    if (outputs_.empty() || std::none_of(outputs_.begin(), outputs_.end(), [](const Tensor& t) { return t.requires_grad(); }))
      report_.message += "\n  No output has a history: was it detached, or computed under NoGrad?";
    const bool only_kinks = std::all_of(parts_.inputs.begin(), parts_.inputs.end(), [](const InputSummary& s) { return s.wrong == s.kinks; });
    if (only_kinks)
      report_.message += "\n  At a kink the derivatives from both sides differ, and no gradient is right: choose inputs away from it.";
    else if (options_.locate)
      report_.message += "\n  " + blame(fn_, inputs_, options_.seed);
    return report_;
  }

  // Analytic side

  /// Rows are output elements, columns the elements of input i. A row is one backward of one element times a random factor, which is divided out
  /// again: a backward that is right only for a gradient of one shows.
  std::vector<Values> analytic_jacobian() {
    std::vector<Values> jacobian;
    for (const Tensor& leaf : leaves_) jacobian.emplace_back(count_ * static_cast<std::size_t>(leaf.numel()), 0.0);
    std::size_t row = 0;
    Values flat;
    for (const Tensor& out : outputs_) {
      for (Index j = 0; j < out.numel(); ++j, ++row) {
        if (!out.requires_grad()) continue;
        Tensor seed = zeros(out.shape(), out.dtype());
        const double scale = std::uniform_real_distribution<>(0.5, 2.0)(random_) * (std::bernoulli_distribution()(random_) ? 1 : -1);
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

  std::vector<Values> random_cotangents(std::size_t count) {
    std::vector<Values> all(count, Values(count_));
    for (Values& v : all)
      for (double& x : v) x = std::normal_distribution<>()(random_);
    return all;
  }

  /// For each cotangent and input, the gradient of their product with the outputs.
  std::vector<std::vector<Values>> gradients_for(const std::vector<Values>& cotangents) {
    std::vector<std::vector<Values>> all;
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

  /// The outputs' product with each cotangent.
  Evaluate projected(std::vector<Values> cotangents) const {
    return [this, cotangents = std::move(cotangents), outputs = Values()](Values& values) mutable {
      evaluate(outputs);
      values.clear();
      for (const Values& c : cotangents) values.push_back(std::inner_product(outputs.begin(), outputs.end(), c.begin(), 0.0));
    };
  }

  Tensor normal_like(const Tensor& t) {
    std::vector<double> values(static_cast<std::size_t>(t.numel()));
    for (double& v : values) v = std::normal_distribution<>()(random_);
    return from_vector(values, t.shape()).to(t.dtype());
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

NamedTensors numbered(const std::vector<Tensor>& inputs) {
  NamedTensors named;
  for (const Tensor& t : inputs) named.emplace_back(t.defined() && !t.name().empty() ? t.name() : fmt::format("{}", named.size()), t);
  return named;
}

}  // namespace heed::detail
