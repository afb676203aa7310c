#include "blame.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "../tensor/factory.h"
#include "../tensor/raise.h"
#include "gradcheck_inputs.h"
#include "numeric_derivative.h"
#include "ops.h"
#include "replay.h"

namespace heed::detail {
namespace {

constexpr int probes = 3;

using Function = std::function<std::vector<Tensor>()>;

double dot(const Tensor& a, const Tensor& b) { return sum(a.detach().to(f64) * b.detach().to(f64)).item<double>(); }

bool comes_from(const Edge& a, const Edge& b) { return a.node.get() == b.node.get() && a.slot == b.slot; }

/// A displacement of an input along a direction, for NumericColumn.
class TensorLine final : public Line {
 public:
  TensorLine(const Tensor& base, const Tensor& direction) : base_(base.detach()), direction_(direction), value_(base_) {}
  double move(double t) override {
    const NoGrad off;
    value_ = base_ + direction_ * t;
    return t;
  }
  const Tensor& value() const { return value_; }

 private:
  Tensor base_, direction_, value_;
};

/// One comparison of a node's backward with differences of its forward, along a random direction of one of its inputs. The direction moves each
/// element by a part of its own size, and the cotangent weighs each output by what it is worth: by its own derivative, or less where its error is
/// large. So small elements and outputs count beside large ones.
class NodeProbe {
 public:
  enum class Verdict { right, wrong, undecided, threw };

  NodeProbe(const Function& fn, const std::vector<Step>& steps, std::size_t s, const Edge& edge, const Tensor& input, std::mt19937_64& random)
      : step_(steps[s]),
        edge_(edge),
        input_(input),
        local_(fn, steps, s, input, edge.node->outputs[edge.slot].id),
        random_(random),
        direction_(sized(normal_like(input, random), input)) {
    for (const Tensor& t : step_.outputs) {
      const Tensor numbers = normal_like(t.to(f64), random);
      append(cotangent_, numbers);
    }
  }

  double analytic() const { return analytic_; }
  double numeric() const { return numeric_; }

  Verdict run(Node& node) {
    TensorLine line(input_, direction_);
    const Evaluate evaluate = [&](Values& values) {
      values.clear();
      for (const Tensor& t : local_(line.value())) append(values, t);
    };
    const double epsilon = epsilon_of(input_.dtype()), size = step_for(1, 1, epsilon);
    const Baseline base = baseline(evaluate, epsilon, [&](double t) { line.move(t * std::normal_distribution<>()(random_)); });
    const auto look = [&](double step) {
      column_.measure(line, evaluate, base, std::min(step, 1.0));
      weigh(step > size);
      return set_analytic(node);
    };
    if (!look(size)) return Verdict::threw;
    if (decided()) {
      if (agree()) return Verdict::right;
      // Finer steps with the same weights: one that contradicts the first has left a kink or a large third derivative behind.
      const double first = numeric_, first_error = error_, analytic = analytic_;
      bool left_behind = false;
      for (double step : {size / 16, size / 256, size / 4096}) {
        column_.measure(line, evaluate, base, step);
        add_up(false);
        left_behind |= agree() && std::abs(numeric_ - first) > bound() + slack * first_error;
      }
      numeric_ = first, analytic_ = analytic;
      return left_behind ? Verdict::right : Verdict::wrong;
    }
    bool still = still_;
    for (double step : {size * 16, size * 256, size * 2048}) {
      if (!look(step)) return Verdict::threw;
      if (decided()) return agree() ? Verdict::right : Verdict::wrong;
      still &= still_;
      // Nothing moves, and nothing would show in rounding, which is the only error then, if the input moved by all of its size.
      if (still && step > size * 16 && std::abs(analytic_) <= error_ * std::min(step, 1.0)) return Verdict::right;
    }
    return Verdict::undecided;
  }

 private:
  /// The estimates are of single elements; sums over outputs and directions round more.
  static constexpr double slack = 10;

  double bound() const { return slack * error_ + 1e-7 * total_; }
  bool agree() const { return std::abs(analytic_ - numeric_) <= bound(); }
  bool decided() const { return bound() <= blinding * norm_; }

  static Tensor sized(const Tensor& direction, const Tensor& input) {
    const double typical = typical_size(input);
    std::vector<double> d = direction.to_vector<double>();
    const std::vector<double> x = input.to_vector<double>();
    for (std::size_t i = 0; i < d.size(); ++i) d[i] *= x[i] != 0 ? std::abs(x[i]) : typical > 0 ? typical : 1.0;
    return from_vector(d, input.shape()).to(input.dtype());
  }

  double error_of(std::size_t j, bool wide) const { return column_.error(j) + (wide ? column_.one_sided_gap(j) : 0); }

  void weigh(bool wide) {
    weights_.resize(cotangent_.size());
    for (std::size_t j = 0; j < weights_.size(); ++j) {
      const double size = std::abs(column_.derivative(j)) + 1e6 * error_of(j, wide);
      weights_[j] = size > 0 && std::isfinite(size) ? cotangent_[j] / size : 0;
    }
    add_up(wide);
  }

  void add_up(bool wide) {
    numeric_ = error_ = total_ = norm_ = 0, still_ = true;
    for (std::size_t j = 0; j < weights_.size(); ++j) {
      if (weights_[j] == 0) {
        still_ &= std::isfinite(column_.derivative(j));
        continue;
      }
      const double part = weights_[j] * column_.derivative(j);
      numeric_ += part, total_ += std::abs(part), norm_ += part * part;
      error_ += std::abs(weights_[j]) * error_of(j, wide);
      still_ &= part == 0;
    }
    norm_ = std::sqrt(norm_);
  }

  /// cotangents . d outputs / d input . direction by the node's own backward; false when it throws.
  bool set_analytic(Node& node) {
    std::vector<Tensor> cotangents;
    auto at = weights_.begin();
    for (const Tensor& t : step_.outputs) {
      const auto end = at + static_cast<std::ptrdiff_t>(t.numel());
      cotangents.push_back(from_vector(std::vector<double>(at, end), t.shape()).to(t.dtype()));
      at = end;
    }
    const NoGrad off;
    const BackwardContext::Filter all;
    analytic_ = 0;
    try {
      Grads grads = checked_backward(node, BackwardContext(node, all), cotangents);
      for (std::size_t i = 0; i < step_.inputs.size(); ++i)
        if (comes_from(node.edges[i], edge_) && grads[i].defined()) analytic_ += dot(grads[i], direction_);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  const Step& step_;
  const Edge& edge_;
  const Tensor& input_;
  LocalFunction local_;
  std::mt19937_64& random_;
  Tensor direction_;
  NumericColumn column_;
  Values cotangent_, weights_;
  double analytic_ = 0, numeric_ = 0, error_ = 0;
  double total_ = 0, norm_ = 0;  // of the parts of `numeric_`: their sizes' sum, and the root of their squares'
  bool still_ = true;
};

class Blame {
 public:
  Blame(const Function& fn, const NamedTensors& inputs, std::uint64_t seed) : fn_(fn), inputs_(inputs), random_(seed) {
    steps_ = trace(fn_, results_);
    nodes_ = nodes_behind(results_);
    for (std::size_t s = 0; s < steps_.size(); ++s)
      if (steps_[s].recorded)
        for (std::uint64_t id : steps_[s].output_ids) step_of_[id] = s;
  }

  std::string text() {
    look_at_nodes([](const Node&) { return true; });
    const std::string cut = cut_off(inputs_);
    if (faults_.empty() && !open_.empty())
      return fmt::format("No node is wrong by itself as far as differences tell; {}{}", open_, cut.empty() ? "" : "; " + cut);
    if (faults_.empty())
      return fmt::format("Each of the {} nodes is right by itself{}", count_,
                         cut.empty()
                             ? "; the error is in how they are put together: a value that went through plain C++, or a branch that depends on it"
                             : ", but " + cut);
    std::string out = joined(faults_);
    if (!cut.empty()) out += "\n  Besides, " + cut;
    return out;
  }

  NodesJudgment judge(const std::string& name, const Tensor& leaf) {
    std::set<const Node*> behind{node_of(leaf)};  // nodes that depend on it
    for (const Node* node : nodes_)
      if (std::any_of(node->edges.begin(), node->edges.end(), [&](const Edge& e) { return behind.count(e.node.get()) > 0; })) behind.insert(node);
    one_probe_will_do_ = true;
    look_at_nodes([&](const Node& source) { return behind.count(&source) > 0; });
    if (!faults_.empty()) return {NodesJudgment::Verdict::wrong, joined(faults_)};
    const std::string cut = cut_off({{name, leaf}});
    if (!cut.empty()) return {NodesJudgment::Verdict::undecided, cut};
    if (!open_.empty()) return {NodesJudgment::Verdict::undecided, open_};
    return {NodesJudgment::Verdict::right, {}};
  }

 private:
  static constexpr std::size_t most_faults = 5;

  static std::string joined(const std::vector<std::string>& faults) {
    std::string out;
    for (std::size_t i = 0; i < std::min(faults.size(), most_faults); ++i) out += (i ? "\n  " : "") + faults[i];
    return out;
  }

  /// Checks the gradients of all nodes by inputs that come from a node for which `counts` holds.
  template <class F>
  void look_at_nodes(F counts) {
    count_ = 0;
    for (Node* node : nodes_) {
      if (node->is_leaf) continue;
      const auto step = step_of_.find(node->outputs[0].id);
      if (step != step_of_.end()) {
        const std::vector<Tensor>& inputs = steps_[step->second].inputs;
        for (std::size_t slot = 0; slot < inputs.size(); ++slot) {
          const Edge& edge = node->edges[slot];
          const auto seen = node->edges.begin() + static_cast<std::ptrdiff_t>(slot);
          if (!edge.node || !counts(*edge.node) || inputs[slot].numel() == 0) continue;
          if (std::any_of(node->edges.begin(), seen, [&](const Edge& e) { return comes_from(e, edge); })) continue;
          check_input(*node, step->second, slot);
        }
      }
      ++count_;
    }
  }

  /// Adds to the faults where the node's backward disagrees with differences of its own forward.
  void check_input(Node& node, std::size_t s, std::size_t slot) {
    const std::string at = fmt::format("called at {}:{}", node.caller.file, node.caller.line);
    bool wrong = false;
    std::vector<double> factors;
    for (int probe = 0; probe < probes; ++probe) {
      NodeProbe found(fn_, steps_, s, node.edges[slot], steps_[s].inputs[slot], random_);
      switch (found.run(node)) {
        case NodeProbe::Verdict::threw: faults_.push_back(fmt::format("node {}, {}: its backward threw, {}", count_, node.name, at)); return;
        case NodeProbe::Verdict::wrong: wrong = true; break;
        case NodeProbe::Verdict::undecided:
          if (open_.empty()) open_ = fmt::format("differences of node {}, {}, by its input {} alone are as blind, {}", count_, node.name, slot, at);
          break;
        case NodeProbe::Verdict::right:
          if (one_probe_will_do_ && probe == 0) return;
          break;
      }
      if (found.numeric() != 0) factors.push_back(found.analytic() / found.numeric());
    }
    if (!wrong) return;
    const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
    const bool one_factor = factors.size() == probes && std::abs(*high - *low) < 1e-2 * std::abs(1 - (*high + *low) / 2);
    const std::string how = one_factor
                                ? (std::abs(*high) < 1e-6 ? "is 0 and should not be" : fmt::format("is wrong by a factor {:.6g}", (*high + *low) / 2))
                                : "is wrong";
    faults_.push_back(fmt::format("node {}, {}, gradient of input {} {}, {}", count_, node.name, slot, how, at));
  }

  /// In words, an input of a recorded node that changes when an input of the function does, but has no history; empty when there is none.
  std::string cut_off(const NamedTensors& inputs) {
    for (const auto& [name, leaf] : inputs) {
      if (leaf.numel() == 0) continue;
      std::vector<Tensor> moved_results;
      std::vector<Step> moved_steps;
      {
        DirectionLine line(leaf, normal_like(leaf, random_));
        line.move(step_for(0, typical_size(leaf), 1e-3));
        try {
          moved_steps = trace(fn_, moved_results);
        } catch (...) {
        }
      }
      if (moved_steps.size() != steps_.size()) continue;
      std::size_t number = 0;
      for (const Node* node : nodes_) {
        if (node->is_leaf) continue;
        const auto step = step_of_.find(node->outputs[0].id);
        if (step != step_of_.end())
          for (std::size_t slot = 0; slot < node->edges.size(); ++slot)
            if (!node->edges[slot].node && differs(steps_[step->second].inputs[slot], moved_steps[step->second].inputs[slot]))
              return fmt::format(
                  "input {} of node {}, {}, changes with {} and is cut off from it (detached, or made without recording), called at {}:{}", slot,
                  number, node->name, name, node->caller.file, node->caller.line);
        ++number;
      }
      for (std::size_t i = 0; i < results_.size(); ++i)
        if (!results_[i].requires_grad() && differs(results_[i], moved_results[i]))
          return fmt::format("output {} changes with {} and has no history (detached, or made without recording)", i, name);
    }
    return {};
  }

  static bool differs(const Tensor& a, const Tensor& b) {
    if (!a.defined() || !b.defined() || !is_float(a.dtype()) || a.shape() != b.shape()) return false;
    return a.to_vector<double>() != b.to_vector<double>();
  }

  const Function& fn_;
  const NamedTensors& inputs_;
  std::mt19937_64 random_;
  std::vector<Step> steps_;
  std::vector<Tensor> results_;
  std::vector<Node*> nodes_;
  std::map<std::uint64_t, std::size_t> step_of_;  // by output id
  std::size_t count_ = 0;                         // of nodes that are no leaves, so far
  std::vector<std::string> faults_;
  bool one_probe_will_do_ = false;  // where it finds nothing wrong
  std::string open_;                // the first node that cannot be told
};

}  // namespace

std::string blame(const Function& fn, const NamedTensors& inputs, std::uint64_t seed) { return Blame(fn, inputs, seed).text(); }

NodesJudgment judge_nodes(const Function& fn, const std::string& name, const Tensor& input, std::uint64_t seed) {
  const NamedTensors inputs{{name, input}};
  return Blame(fn, inputs, seed).judge(name, input);
}

}  // namespace heed::detail
