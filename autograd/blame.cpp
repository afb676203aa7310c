#include "blame.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "../tensor/factory.h"
#include "../tensor/raise.h"
#include "numeric_derivative.h"
#include "ops.h"
#include "replay.h"

namespace heed::detail {
namespace {

constexpr int probes = 3;

using Function = std::function<std::vector<Tensor>()>;

double dot(const Tensor& a, const Tensor& b) { return sum(a.detach().to(f64) * b.detach().to(f64)).item<double>(); }

double epsilon_of(const Tensor& t) {
  return t.dtype() == f64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
}

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

class Blame {
 public:
  Blame(const Function& fn, const NamedTensors& inputs, std::uint64_t seed) : fn_(fn), inputs_(inputs), random_(seed) {
    steps_ = trace(fn_, results_);
  }

  std::string text() {
    const std::vector<Node*> nodes = nodes_behind(results_);
    std::map<std::uint64_t, std::size_t> step_of;  // by output id
    for (std::size_t s = 0; s < steps_.size(); ++s)
      if (steps_[s].recorded)
        for (std::uint64_t id : steps_[s].output_ids) step_of[id] = s;
    std::string out;
    std::size_t number = 0, wrong = 0;
    for (Node* node : nodes) {
      if (node->is_leaf) continue;
      const auto step = step_of.find(node->outputs[0].id);
      if (step != step_of.end()) {
        const std::string fault = check_node(*node, step->second, number);
        if (!fault.empty() && ++wrong <= 5) out += (out.empty() ? "" : "\n  ") + fault;
      }
      ++number;
    }
    const std::string cut = cut_off(nodes, step_of);
    if (wrong == 0)
      out =
          fmt::format("Each of the {} nodes is right by itself{}", number,
                      cut.empty() ? "; the error is in how they are put together: a value that went through plain C++, or a branch that depends on it"
                                  : ", but " + cut);
    else if (!cut.empty())
      out += "\n  Besides, " + cut;
    return out;
  }

 private:
  Tensor normal_like(const Tensor& t) {
    std::vector<double> values(static_cast<std::size_t>(t.numel()));
    for (double& v : values) v = std::normal_distribution<>()(random_);
    return from_vector(values, t.shape()).to(t.dtype());
  }

  /// Empty when the node's backward agrees with differences of its own forward.
  std::string check_node(Node& node, std::size_t s, std::size_t number) {
    const Step& step = steps_[s];
    std::string out;
    std::vector<std::uint64_t> done;
    for (std::size_t slot = 0; slot < step.inputs.size(); ++slot) {
      const Tensor& input = step.inputs[slot];
      if (!node.edges[slot].node || input.numel() == 0 || std::count(done.begin(), done.end(), input.id())) continue;
      done.push_back(input.id());
      const std::string fault = check_input(node, s, slot, number);
      if (!fault.empty()) out += (out.empty() ? "" : "\n  ") + fault;
    }
    return out;
  }

  std::string check_input(Node& node, std::size_t s, std::size_t slot, std::size_t number) {
    const Step& step = steps_[s];
    const Tensor& input = step.inputs[slot];
    const LocalFunction local(fn_, steps_, s, input);
    const double epsilon = epsilon_of(input), size = step_for(0, typical_size(input), epsilon);
    bool wrong = false;
    std::vector<double> factors;
    for (int probe = 0; probe < probes; ++probe) {
      std::vector<Tensor> cotangents;
      for (const Tensor& t : step.outputs) cotangents.push_back(normal_like(t));
      const Tensor direction = normal_like(input);
      const std::optional<double> analytic = analytic_slope(node, step, input, cotangents, direction);
      if (!analytic) return fmt::format("node {}, {}: its backward threw, called at {}:{}", number, node.name, node.caller.file, node.caller.line);

      TensorLine line(input, direction);
      const Evaluate evaluate = [&](Values& values) {
        double slope = 0;
        const std::vector<Tensor> made = local(line.value());
        for (std::size_t i = 0; i < made.size(); ++i) slope += dot(made[i], cotangents[i]);
        values.assign(1, slope);
      };
      const Baseline base = baseline(evaluate, epsilon, [&](double t) { line.move(t * typical_size(input)); });
      NumericColumn column;
      column.measure(line, evaluate, base, size);
      const double numeric = column.derivative(0);
      // The sum over outputs and directions rounds more than a single element does.
      const double bound = 10 * column.error(0) + 1e-7 * std::abs(numeric);
      if (!(std::abs(*analytic - numeric) <= bound)) wrong = true;
      if (numeric != 0) factors.push_back(*analytic / numeric);
    }
    if (!wrong) return {};
    const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
    const bool one_factor = factors.size() == probes && std::abs(*high - *low) < 1e-2 * std::abs(1 - (*high + *low) / 2);
    const std::string how = one_factor
                                ? (std::abs(*high) < 1e-6 ? "is 0 and should not be" : fmt::format("is wrong by a factor {:.6g}", (*high + *low) / 2))
                                : "is wrong";
    return fmt::format("node {}, {}, gradient of input {} {}, called at {}:{}", number, node.name, slot, how, node.caller.file, node.caller.line);
  }

  /// cotangents . d outputs / d input . direction by the node's own backward; nothing when it throws.
  std::optional<double> analytic_slope(Node& node, const Step& step, const Tensor& input, const std::vector<Tensor>& cotangents,
                                       const Tensor& direction) {
    const NoGrad off;
    const BackwardContext::Filter all;
    try {
      Grads grads = checked_backward(node, BackwardContext(node, all), cotangents);
      double slope = 0;
      for (std::size_t i = 0; i < step.inputs.size(); ++i)
        if (step.inputs[i].id() == input.id() && grads[i].defined()) slope += dot(grads[i], direction);
      return slope;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  /// In words, an input of a recorded node that changes when an input of the function does, but has no history; empty when there is none.
  std::string cut_off(const std::vector<Node*>& nodes, const std::map<std::uint64_t, std::size_t>& step_of) {
    for (const auto& [name, leaf] : inputs_) {
      if (leaf.numel() == 0) continue;
      std::vector<Tensor> moved_results;
      std::vector<Step> moved_steps;
      {
        DirectionLine line(leaf, normal_like(leaf));
        line.move(step_for(0, typical_size(leaf), 1e-3));
        try {
          moved_steps = trace(fn_, moved_results);
        } catch (...) {
        }
      }
      if (moved_steps.size() != steps_.size()) continue;
      std::size_t number = 0;
      for (const Node* node : nodes) {
        if (node->is_leaf) continue;
        const auto step = step_of.find(node->outputs[0].id);
        if (step != step_of.end())
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
};

}  // namespace

std::string blame(const Function& fn, const NamedTensors& inputs, std::uint64_t seed) { return Blame(fn, inputs, seed).text(); }

}  // namespace heed::detail
