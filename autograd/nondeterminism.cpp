#include "nondeterminism.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "../tensor/raise.h"
#include "analytic_derivative.h"
#include "gradcheck_inputs.h"
#include "replay.h"

namespace heed::detail {
namespace {

/// An op's result, or what a node's backward made.
struct Event {
  const char* name;  ///< of the op, or of the node whose backward is running
  Caller caller;
  bool in_backward;
  std::uint64_t id;             ///< of the first output of that node
  std::vector<Tensor> results;  ///< copies
  std::vector<Tensor> inputs;   ///< of the op
};

class Tape final : public RecordObserver {
 public:
  explicit Tape(std::vector<Event>& events) : events_(events) {}

  void on_record(const OpName& op, std::span<Tensor> outputs, std::span<const Tensor> inputs) override {
    Event e{op.name, op.caller, false, outputs.empty() ? 0 : outputs[0].id(), {}, {}};
    if (const Node* node = thread_state.running)
      e.name = node->name, e.caller = node->caller, e.in_backward = true, e.id = node->outputs[0].id;
    else
      for (const Tensor& t : inputs) e.inputs.push_back(t.defined() ? copy_of(t) : t);
    for (const Tensor& t : outputs) e.results.push_back(copy_of(t));
    events_.push_back(std::move(e));
  }

  void on_backward(const Node& node, Grads& grads) override {
    Event e{node.name, node.caller, true, node.outputs[0].id, {}, {}};
    for (std::size_t i = 0; i < grads.size(); ++i) e.results.push_back(grads[i].defined() ? copy_of(grads[i]) : Tensor());
    events_.push_back(std::move(e));
  }

 private:
  std::vector<Event>& events_;
};

std::vector<Tensor> observed(const std::function<std::vector<Tensor>()>& run, std::vector<Event>& events) {
  Tape tape(events);
  const GradModeScope mode(true);
  const Observing on(tape);
  return run();
}

bool same(const Tensor& a, const Tensor& b, double tolerance) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.shape() == b.shape() && a.dtype() == b.dtype() && same_values(a.to_vector<double>(), b.to_vector<double>(), tolerance);
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [tolerance](const Tensor& x, const Tensor& y) { return same(x, y, tolerance); });
}

/// The node by its number among those behind the results, as other messages count them; an op that is none of them without.
std::string described(const Event& e, const std::vector<Tensor>& results) {
  std::size_t number = 0;
  for (const Node* node : nodes_behind(results)) {
    if (node->is_leaf) continue;
    if (node->outputs[0].id == e.id) return fmt::format("node {}, {}, called at {}:{}", number, e.name, e.caller.file, e.caller.line);
    ++number;
  }
  return fmt::format("op {}, called at {}:{}", e.name, e.caller.file, e.caller.line);
}

}  // namespace

std::string first_difference(const std::function<std::vector<Tensor>()>& run, double tolerance) {
  std::vector<Event> first, second;
  observed(run, first);
  const std::vector<Tensor> results = observed(run, second);
  for (std::size_t i = 0; i < second.size(); ++i) {
    const Event& e = second[i];
    const std::string what = (e.in_backward ? "the backward of " : "") + described(e, results);
    if (i == first.size() || std::string_view(first[i].name) != e.name) return what + ", where the runs take different courses";
    if (same(first[i].results, e.results, tolerance)) continue;
    // All ops before gave the same: an input that differs did not come from an op.
    for (std::size_t slot = 0; slot < e.inputs.size(); ++slot)
      if (!same(first[i].inputs[slot], e.inputs[slot], tolerance)) return fmt::format("input {} of {}", slot, what);
    return what;
  }
  return {};
}

}  // namespace heed::detail
