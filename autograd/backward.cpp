#include "backward.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "../tensor/kernels/elementwise.h"
#include "../tensor/raise.h"
#include "op.h"
#include "ops.h"

namespace heed {
namespace detail {
namespace {

/// The gradient of one output while contributions come in: the first is borrowed, the second makes a sum of our own, later ones are added to it.
class Accumulator {
 public:
  void add(Tensor g, bool creates_graph) {
    if (!sum_.defined()) {
      sum_ = std::move(g);
      owned_ = false;
    } else if (creates_graph) {
      sum_ = sum_ + g;
    } else if (owned_) {
      dispatch_float(g.dtype(), [&]<class T>() { kernels::accumulate<T>(sum_.mutable_data<T>(), {g.data<T>(), g.strides()}, g.shape()); });
    } else {
      sum_ = sum_ + g;
      owned_ = true;
    }
  }
  const Tensor& sum() const { return sum_; }
  Tensor take() { return std::move(sum_); }

 private:
  Tensor sum_;
  bool owned_ = false;
};

/// A node that waits for its consumers, with the gradients that have arrived for its outputs.
struct Waiting {
  Ref<Node> node;
  Accumulator first;              // of output 0: nearly all nodes have one output
  std::vector<Accumulator> rest;  // of outputs 1, 2, ...

  Accumulator& slot(std::size_t i) {
    if (i == 0) return first;
    if (rest.size() < i) rest.resize(node->outputs.size() - 1);
    return rest[i - 1];
  }
};

/// The gradient is written to `.grad` when the whole pass has succeeded: a pass that throws leaves every `.grad` as it was.
void add_to_leaf(Leaf& leaf, Tensor g, bool creates_graph) {
  if (leaf.grad.defined()) {
    if (creates_graph || leaf.grad.requires_grad())
      leaf.grad = leaf.grad + g;
    else
      dispatch_float(g.dtype(), [&]<class T>() { kernels::accumulate<T>(leaf.grad.mutable_data<T>(), {g.data<T>(), g.strides()}, g.shape()); });
    return;
  }
  const TensorImpl& impl = *g.ref();
  const bool ours = g.ref().unique() && impl.storage.unique() && impl.contiguous && impl.layout.offset == 0;
  leaf.grad = ours ? std::move(g) : g.clone();
}

/// A gradient as the engine passes it on: of the input's dtype, and summed over the dims along which the input was broadcast.
Tensor fitted(const Node& node, std::size_t input, Tensor gradient) {
  const Edge& edge = node.edges[input];
  const OutputInfo& want = edge.node->outputs[edge.slot];
  if (gradient.dtype() != want.dtype)
    raise<GradError>(node.op(), "the backward made a {} gradient for input {}, which is {}", gradient.dtype(), input, want.dtype);
  if (gradient.shape() == want.shape) return gradient;
  if (!broadcasts_to(want.shape, gradient.shape()))
    raise<GradError>(node.op(), "the backward made a gradient of shape {} for input {} of shape {}", gradient.shape(), input, want.shape);
  return sum_to(gradient, want.shape);
}

}  // namespace

Grads checked_backward(Node& node, const BackwardContext& context, std::span<const Tensor> output_grads) {
  struct Running {
    const Node* outer;
    explicit Running(const Node* node) : outer(std::exchange(thread_state.running, node)) {}
    ~Running() { thread_state.running = outer; }
  } const running(&node);
  Grads made = node.backward(context, output_grads);
  if (made.size() != node.edges.size()) raise<GradError>(node.op(), "the backward made {} gradients for {} inputs", made.size(), node.edges.size());
  if (thread_state.observer && !running.outer) thread_state.observer->on_backward(node, made);
  for (std::size_t i = 0; i < node.edges.size(); ++i) {
    if (!context.needs(i))
      made[i] = {};
    else if (made[i].defined())
      made[i] = fitted(node, i, std::move(made[i]));
  }
  return made;
}

namespace {

class Pass {
 public:
  explicit Pass(bool retain_graph, bool create_graph) : retain_(retain_graph || create_graph), create_(create_graph) {}

  void seed(const Tensor& root, Tensor gradient) { deliver({Ref<Node>::share(node_of(root)), root.ref()->slot}, std::move(gradient)); }

  /// Limits the pass to the nodes that lead to `targets`, whose gradients are kept for `captured`.
  void stop_at(const std::vector<Tensor>& targets, const std::vector<Tensor>& roots);
  Tensor captured(const Tensor& target) {
    auto found = captured_.find({node_of(target), target.ref()->slot});
    return found == captured_.end() ? Tensor() : found->second.sum();  // not taken: an input may be named twice
  }

  void run();

 private:
  using Slot = std::pair<const Node*, std::uint16_t>;

  void deliver(const Edge& to, Tensor gradient) {
    Waiting& waiting = entry(to.node->sequence);
    if (!waiting.node) waiting.node = to.node;
    waiting.slot(to.slot).add(std::move(gradient), create_);
  }
  Waiting& entry(std::uint64_t sequence) {
    const auto place = waiting_.lower_bound(sequence);
    if (place != waiting_.end() && place->first == sequence) return place->second;
    if (done_.empty()) return waiting_.emplace_hint(place, sequence, Waiting())->second;
    Entries::node_type again = std::move(done_.back());
    done_.pop_back();
    again.key() = sequence;
    return waiting_.insert(place, std::move(again))->second;
  }
  void step(Waiting&);

  const bool retain_, create_;
  // Latest first: a node's consumers were all recorded after it.
  using Entries = std::map<std::uint64_t, Waiting, std::greater<>>;
  Entries waiting_;
  std::vector<Entries::node_type> done_;  // empty ones, for the nodes to come: few wait at a time
  std::vector<std::pair<Ref<Node>, Tensor>> leaves_;
  std::map<Slot, Accumulator> captured_;
  bool limited_ = false;
  std::unordered_map<const Node*, bool> leads_;  // for nodes in reach of a target: whether one lies further on
  BackwardContext::Filter wanted_;
};

void Pass::stop_at(const std::vector<Tensor>& targets, const std::vector<Tensor>& roots) {
  limited_ = true;
  for (const Tensor& t : targets) captured_[{node_of(t), t.ref()->slot}];
  std::unordered_set<const Node*> is_target;
  for (const Tensor& t : targets) is_target.insert(node_of(t));
  for (const Node* node : nodes_behind(roots)) {
    const bool leads = std::any_of(node->edges.begin(), node->edges.end(), [&](const Edge& e) { return e.node && leads_.count(e.node.get()); });
    if (leads || is_target.count(node)) leads_.emplace(node, leads);
  }
  wanted_ = [this](const Node& node) { return leads_.count(&node) > 0; };
}

void Pass::step(Waiting& waiting) {
  Node& node = *waiting.node;
  std::array<Tensor, 4> few;
  std::vector<Tensor> many;
  if (node.outputs.size() > few.size()) many.resize(node.outputs.size());
  const std::span<Tensor> grads = many.empty() ? std::span<Tensor>(few.data(), node.outputs.size()) : std::span<Tensor>(many);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    grads[i] = waiting.slot(i).take();
    if (!grads[i].defined()) continue;
    if (node.extras)
      for (const auto& hook : std::vector(node.extras->hooks[i]))  // a copy: a hook may register another
        if (Tensor replaced = hook(grads[i]); replaced.defined()) {
          if (replaced.shape() != grads[i].shape() || replaced.dtype() != grads[i].dtype())
            raise<GradError>("register_hook: the hook of {} returned {} {} for a gradient of {} {}{}", node.name, replaced.dtype(), replaced.shape(),
                             grads[i].dtype(), grads[i].shape(), called_at(node.caller));
          grads[i] = std::move(replaced);
        }
    if (limited_)
      if (auto target = captured_.find({&node, static_cast<std::uint16_t>(i)}); target != captured_.end()) target->second.add(grads[i], create_);
  }
  if (node.is_leaf) {
    // One that stopped asking after the graph was recorded gets none.
    if (!limited_ && node.requires_grad) leaves_.emplace_back(waiting.node, std::move(grads[0]));
    return;
  }
  if (limited_) {
    const auto leads = leads_.find(&node);
    if (leads == leads_.end() || !leads->second) return;
  }
  if (node.released)
    raise<GradError>("backward: the graph of {}{} was freed by an earlier backward; keep it with retain_graph", node.name, called_at(node.caller));

  const BackwardContext context(node, wanted_);
  Grads made = checked_backward(node, context, grads);
  for (std::size_t i = 0; i < node.edges.size(); ++i)
    if (made[i].defined()) deliver(node.edges[i], std::move(made[i]));
  if (!retain_) node.release_saved();
}

void Pass::run() {
  const GradModeScope mode(create_);
  while (!waiting_.empty()) {
    Entries::node_type first = waiting_.extract(waiting_.begin());
    step(first.mapped());
    first.mapped() = Waiting();
    done_.push_back(std::move(first));
  }
  for (auto& [node, gradient] : leaves_) add_to_leaf(static_cast<Leaf&>(*node), std::move(gradient), create_);
}

/// The gradient that a pass starts with: checked, or 1 for a single element.
Tensor root_gradient(const OpName& op, const Tensor& root, const Tensor& gradient) {
  if (!root.requires_grad())
    raise<GradError>(
        op,
        "the tensor of shape {} has no history: no input of it requires a gradient, or it was made without recording (NoGrad, detach, inside a "
        "hook)",
        root.shape());
  if (!gradient.defined()) {
    if (root.numel() != 1)
      raise<GradError>(op, "wants a gradient to start with, since the tensor has {} elements: shape {}", root.numel(), root.shape());
    return ones(root.shape(), root.dtype());
  }
  if (gradient.shape() != root.shape()) raise<GradError>(op, "the gradient has shape {}, the tensor {}", gradient.shape(), root.shape());
  if (gradient.dtype() != root.dtype()) raise<GradError>(op, "the gradient is {}, the tensor {}", gradient.dtype(), root.dtype());
  return gradient;
}

bool has_nan(const Tensor& t) { return t.defined() && is_float(t.dtype()) && any(isnan(t)).item<bool>(); }

/// Looks at what passes; its own ops are not looked at.
class NanSearch final : public RecordObserver {
 public:
  explicit NanSearch(RecordObserver* before) : before_(before) {}
  RecordObserver* before() const { return before_; }

  void on_record(const OpName& op, std::span<Tensor> outputs, std::span<const Tensor> inputs) override {
    if (before_) before_->on_record(op, outputs, inputs);
    if (thread_state.running) return;  // a part of a backward, which is judged as a whole and by the name of its op
    const Unseen quiet;
    if (std::any_of(inputs.begin(), inputs.end(), has_nan)) return;
    for (const Tensor& out : outputs)
      if (has_nan(out)) raise<GradError>(op, "made a NaN out of inputs without one");
  }
  void on_backward(const Node& node, Grads& grads) override {
    if (before_) before_->on_backward(node, grads);
    const Unseen quiet;
    for (std::size_t i = 0; i < grads.size(); ++i)
      if (has_nan(grads[i])) raise<GradError>(node.op(), "the backward made a NaN in the gradient of input {}", i);
  }

 private:
  RecordObserver* before_;
};

}  // namespace
}  // namespace detail

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs, const std::vector<Tensor>& grad_outputs,
                         GradOptions options) {
  if (!grad_outputs.empty() && grad_outputs.size() != outputs.size())
    detail::raise<GradError>("grad: {} gradients for {} outputs", grad_outputs.size(), outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].requires_grad()) detail::raise<GradError>("grad: input {} of shape {} does not require a gradient", i, inputs[i].shape());
  detail::Pass pass(options.retain_graph, options.create_graph);
  std::vector<Tensor> starts;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    starts.push_back(detail::root_gradient("grad", outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i]));
  pass.stop_at(inputs, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) pass.seed(outputs[i], std::move(starts[i]));
  pass.run();
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    found.push_back(pass.captured(inputs[i]));
    if (!found.back().defined() && !options.allow_unused)
      detail::raise<GradError>("grad: input {}{}{} of shape {} is not connected to the outputs; allow_unused permits it", i,
                               inputs[i].name().empty() ? "" : " ", inputs[i].name(), inputs[i].shape());
  }
  return found;
}

AnomalyMode::AnomalyMode() : observer_(new detail::NanSearch(detail::thread_state.observer)) {
  detail::thread_state.observer = static_cast<detail::NanSearch*>(observer_);
}
AnomalyMode::~AnomalyMode() {
  auto* search = static_cast<detail::NanSearch*>(observer_);
  detail::thread_state.observer = search->before();
  delete search;
}

// What Tensor has of differentiation.

namespace detail {
namespace {
Leaf& leaf_of(const Tensor& t) {
  TensorImpl& impl = t.impl("leaf");
  if (!impl.grad)
    impl.grad = [&] {
      Ref<Leaf> leaf = Leaf::make(t);
      return Ref<GradData>::share(leaf.get());
    }();
  return static_cast<Leaf&>(*impl.grad);
}
}  // namespace
}  // namespace detail

Tensor& Tensor::requires_grad_(bool wanted) {
  const detail::Node* node = detail::node_of(*this);
  if (node && !node->is_leaf)
    detail::raise<GradError>("requires_grad_: only leaves can be asked; this is the output of {}. Use detach() or clone under NoGrad", node->name);
  if (wanted && !detail::is_float(impl("requires_grad_").dtype))
    detail::raise<DTypeError>("requires_grad_: only f32 and f64 have gradients, this is {}", dtype());
  if (wanted || node) detail::leaf_of(*this).requires_grad = wanted;
  return *this;
}

bool Tensor::requires_grad() const { return detail::needs_grad(*this); }
bool Tensor::is_leaf() const {
  const detail::Node* node = detail::node_of(*this);
  return !node || node->is_leaf;
}

Tensor Tensor::grad() const {
  const detail::Node* node = detail::node_of(*this);
  return node && node->is_leaf ? static_cast<const detail::Leaf*>(node)->grad : Tensor();
}

void Tensor::zero_grad() {
  if (detail::Node* node = detail::node_of(*this); node && node->is_leaf) static_cast<detail::Leaf*>(node)->grad = {};
}

Tensor Tensor::detach() const { return detail::make_view(*this, impl("detach").layout); }

Tensor& Tensor::named(std::string name) {
  detail::Node* node = detail::node_of(*this);
  if (!node) node = &detail::leaf_of(*this);
  node->extend().names[impl_->slot] = std::move(name);
  return *this;
}

std::string Tensor::name() const {
  const detail::Node* node = detail::node_of(*this);
  return node && node->extras ? node->extras->names[impl_->slot] : std::string();
}

void Tensor::register_hook(std::function<Tensor(const Tensor&)> f) const {
  if (!requires_grad())
    detail::raise<GradError>("register_hook: the tensor of shape {} does not require a gradient", impl("register_hook").layout.shape);
  if (!f) detail::raise<GradError>("register_hook: there is no function to call");
  detail::node_of(*this)->extend().hooks[impl_->slot].push_back(std::move(f));
}

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  impl("backward");
  Tensor start = detail::root_gradient("backward", *this, gradient);
  detail::Pass pass(options.retain_graph, options.create_graph);
  pass.seed(*this, std::move(start));
  pass.run();
}

}  // namespace heed
