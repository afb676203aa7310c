#include "op.h"

#include <limits>

#include "../tensor/raise.h"
#include "backward.h"
#include "ops.h"

namespace heed {

NoGrad::NoGrad() : before_(std::exchange(detail::thread_state.grad_enabled, false)) {}
NoGrad::~NoGrad() { detail::thread_state.grad_enabled = before_; }

Saved::Saved(const Saved& other) : tensor_(other.tensor_), version_(other.version_) {
  if (detail::thread_state.saved_visitor && tensor_.defined()) (*detail::thread_state.saved_visitor)(tensor_);
}

Tensor Saved::get() const {
  if (!tensor_.defined()) return {};
  if (tensor_.ref()->storage->version() != version_) {
    const detail::Node* node = detail::thread_state.running;
    detail::raise<GradError>(node ? node->op() : "saved", "a value saved for backward was changed in place: {} {} at version {}, saved at version {}",
                             tensor_.dtype(), tensor_.shape(), tensor_.ref()->storage->version(), version_);
  }
  return detail::thread_state.grad_enabled ? detail::with_history(tensor_) : tensor_;
}

bool BackwardContext::needs(std::size_t i) const {
  const detail::Edge& edge = node_.edges[i];
  return edge.node && (!wanted_ || wanted_(*edge.node));
}
bool BackwardContext::creates_graph() const { return detail::thread_state.grad_enabled; }

namespace detail {
namespace {

/// One counter for the process, so that graphs that span threads keep their order.
std::uint64_t next_sequence() {
  static std::atomic<std::uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed) + 1;
}

struct DestructionStack {
  Node* top = nullptr;
  bool busy = false;
};
thread_local constinit DestructionStack doomed;

}  // namespace

GradModeScope::GradModeScope(bool enabled) : before_(std::exchange(thread_state.grad_enabled, enabled)) {}
GradModeScope::~GradModeScope() { thread_state.grad_enabled = before_; }

Node::Node(const OpName& op) : name(op.name), caller(op.caller), sequence(next_sequence()) { count_node(1); }

void Node::dispose() noexcept {
  next_ = std::exchange(doomed.top, this);
  if (!doomed.busy) destroy_queued_nodes();
}

void destroy_queued_nodes() noexcept {
  doomed.busy = true;
  while (doomed.top) {
    Node* node = doomed.top;
    doomed.top = node->next_;
    node->destroy();  // may queue the nodes that only this one kept
  }
  doomed.busy = false;
}

NodeExtras& Node::extend() {
  if (!extras) {
    extras = std::make_unique<NodeExtras>();
    extras->names.resize(outputs.size());
    extras->hooks.resize(outputs.size());
  }
  return *extras;
}

Ref<Leaf> Leaf::make(const Tensor& t) { return Ref<Leaf>::adopt(new (allocate(sizeof(Leaf))) Leaf(t)); }

Leaf::Leaf(const Tensor& t) : Node("leaf"), output_{t.shape(), t.dtype(), t.id()} {
  is_leaf = true;
  requires_grad = false;
  outputs = {&output_, 1};
}

void Leaf::destroy() noexcept {
  this->~Leaf();
  deallocate(this, sizeof(Leaf));
}

void require_slots(const OpName& op, std::size_t outputs) {
  constexpr std::size_t most = std::numeric_limits<std::uint16_t>::max();
  if (outputs > most) raise<ShapeError>(op, "makes {} results; an op has at most {}", outputs, most);
}

void connect(Edge& edge, const Tensor& input) {
  if (!needs_grad(input)) return;
  edge.node = Ref<Node>::share(node_of(input));
  edge.slot = input.ref()->slot;
}

void attach(Tensor& output, const Ref<Node>& node, std::size_t slot) {
  if (!output.ref().unique() || output.ref()->grad) {
    const std::uint64_t id = output.id();
    output = make_view(output, output.ref()->layout);
    output.ref()->id = id;
  }
  TensorImpl& impl = *output.ref();
  node->outputs[slot] = {impl.layout.shape, impl.dtype, impl.id};
  impl.slot = static_cast<std::uint16_t>(slot);
  impl.grad = Ref<GradData>::share(node.get());
}

Tensor with_history(const Tensor& t) {
  const Node* node = thread_state.running;
  if (!node || t.ref()->grad) return t;
  for (std::size_t i = 0; i < node->outputs.size(); ++i) {
    if (node->outputs[i].id != t.id()) continue;
    Tensor out = make_view(t, t.ref()->layout);
    out.ref()->id = t.id();
    out.ref()->slot = static_cast<std::uint16_t>(i);
    out.ref()->grad = Ref<GradData>::share(const_cast<Node*>(node));
    return out;
  }
  return t;
}

Grads differentiate_twin(const BackwardContext& context, const std::vector<Tensor>& inputs, const Tensor& output_grad,
                         const std::function<Tensor(const std::vector<Tensor>&)>& twin) {
  std::vector<Tensor> slots = inputs, wanted;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !context.needs(i)) continue;
    slots[i] = alias(inputs[i]);
    wanted.push_back(slots[i]);
  }
  std::vector<Tensor> found = grad({twin(slots)}, wanted, {output_grad}, {.create_graph = true, .allow_unused = true});
  std::vector<Tensor> out(inputs.size());
  for (std::size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && context.needs(i)) out[i] = std::move(found[next++]);
  return out;
}

}  // namespace detail
}  // namespace heed
