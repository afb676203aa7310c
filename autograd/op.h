#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../tensor/tensor.h"
#include "grad_mode.h"

// What an op author needs. An op checks its arguments, computes its output from the elements, and hands both to `record`
// with a lambda that states the derivative:
//
//   // y = x^2, dx = 2 x dy
//   Tensor square(const Tensor& x) {
//     Tensor y = ...;
//     return record("square", y, x, [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {2 * x.get() * dy}; });
//   }
//
// The lambda states only the mathematics; it captures saved tensors, sizes and numbers, by name. The engine sums gradients of broadcast inputs
// back to the input's shape, checks shape and dtype, accumulates, and frees. A rule written with ops can be differentiated again.

namespace heed {

namespace detail {
class Node;
}

/// What `record` is told: `record("square", ...)` points at the line of that call, `record({"square", caller}, ...)` at the caller's caller.
/// The name must outlive the graph: a literal.
struct RecordName : OpName {
  /// At the line of the call, or where the caller of an op called it.
  RecordName(const char* op, Caller from = Caller::here()) : OpName(op, from) {}
  /// At the place that the op knows.
  RecordName(const OpName& op) : OpName(op) {}
};

/// A value kept for backward that notices later in-place writes.
class Saved {
 public:
  /// `saved(t)`: no copy of the elements.
  explicit Saved(const Tensor& t) : tensor_(t), version_(t.defined() ? t.ref()->storage->version() : 0) {}
  Saved(const Saved& other);                     ///< keeps the same value; how saved bytes are counted
  Saved(Saved&&) noexcept = default;             ///< leaves the other undefined
  Saved& operator=(const Saved&) = default;      ///< keeps the same value
  Saved& operator=(Saved&&) noexcept = default;  ///< leaves the other undefined
  /// The value, inside a backward that creates a graph with its history. GradError when it was written to since; undefined when saved so.
  Tensor get() const;

 private:
  Tensor tensor_;
  std::uint32_t version_;
};
inline Saved saved(const Tensor& t) { return Saved(t); }  ///< for the capture of a backward lambda: `[x = saved(x)]`

/// One gradient for each input of the op, in order; undefined where there is none.
class Grads {
 public:
  /// `return {da, db};`, for at most four inputs.
  template <class... T>
  requires(std::same_as<std::remove_cvref_t<T>, Tensor>&&...) Grads(T&&... grads) : size_(sizeof...(T)) {
    static_assert(sizeof...(T) <= inline_size, "use the constructor from a vector");
    std::size_t i = 0;
    ((few_[i++] = std::forward<T>(grads)), ...);
  }
  /// For any number of inputs.
  Grads(std::vector<Tensor> grads) : many_(std::move(grads)), size_(many_.size()) {}

  std::size_t size() const { return size_; }                                        ///< as many as inputs, or the engine throws
  Tensor& operator[](std::size_t i) { return many_.empty() ? few_[i] : many_[i]; }  ///< of input i; unchecked

 private:
  static constexpr std::size_t inline_size = 4;
  std::array<Tensor, inline_size> few_;
  std::vector<Tensor> many_;
  std::size_t size_;
};

/// What a backward may ask about the pass that runs it.
class BackwardContext {
 public:
  /// Whether the gradient of input i is wanted; others may stay undefined. Inputs count through vectors of tensors.
  bool needs(std::size_t i) const;
  /// Whether this backward is itself recorded, so that the rule must be made of ops.
  bool creates_graph() const;

  using Filter = std::function<bool(const detail::Node&)>;  ///< whether a node lies on a way that the pass takes
  /// What the engine makes for each node that it runs.
  BackwardContext(const detail::Node& node, const Filter& wanted) : node_(node), wanted_(wanted) {}

 private:
  const detail::Node& node_;
  const Filter& wanted_;
};

namespace detail {

/// Where an input's gradient goes: output `slot` of the node that made it. Absent for inputs that need none.
struct Edge {
  Ref<Node> node;
  std::uint16_t slot = 0;
};

struct OutputInfo {
  Dims shape;
  DType dtype;
  std::uint64_t id;
};

/// Rarely there: what users attach to a tensor that is in a graph.
struct NodeExtras {
  std::vector<std::string> names;                                        // by output
  std::vector<std::vector<std::function<Tensor(const Tensor&)>>> hooks;  // by output
};

/// A step of the graph: an op that was recorded, or a leaf. One block holds it, its lambda, edges and output descriptions.
class Node : public GradData {
 public:
  const char* name;
  Caller caller;
  std::uint64_t sequence;  ///< larger than that of every node it depends on
  bool is_leaf = false;
  bool requires_grad = true;
  bool released = false;  ///< the saved values are gone
  std::span<Edge> edges;
  std::span<OutputInfo> outputs;
  std::unique_ptr<NodeExtras> extras;

  virtual Grads backward(const BackwardContext&, std::span<const Tensor> output_grads) = 0;
  /// Calls `see` with every value that the lambda saved.
  virtual void visit_saved(const std::function<void(const Tensor&)>& see) const = 0;
  /// Frees saved values; the node can then no longer run.
  virtual void release_saved() noexcept = 0;
  /// Destroys the node and frees its block.
  virtual void destroy() noexcept = 0;
  /// Queues the node for destruction on this thread's stack: nothing recurses over the graph.
  void dispose() noexcept final;

  NodeExtras& extend();
  OpName op() const { return {name, caller}; }  ///< for error texts

 protected:
  Node(const OpName& op);
  ~Node() { count_node(-1); }

 private:
  friend void destroy_queued_nodes() noexcept;
  Node* next_ = nullptr;
};

/// A tensor that was not made by a recorded op: holds its gradient.
class Leaf final : public Node {
 public:
  static Ref<Leaf> make(const Tensor&);
  Tensor grad;

  Grads backward(const BackwardContext&, std::span<const Tensor>) override { return {}; }
  void visit_saved(const std::function<void(const Tensor&)>&) const override {}
  void release_saved() noexcept override {}
  void destroy() noexcept override;

 private:
  explicit Leaf(const Tensor&);
  OutputInfo output_;
};

/// Sees every op, also while nothing is recorded: anomaly mode, profilers, and the replay of single ops. One at a time in a thread; a new one knows
/// the one before it.
class RecordObserver {
 public:
  virtual ~RecordObserver() = default;
  /// May replace outputs by others of the same shape and dtype; called before they are attached to the graph.
  virtual void on_record(const OpName&, std::span<Tensor> outputs, std::span<const Tensor> inputs) = 0;
  /// After a node's backward, before its gradients travel on. Not for the nodes that a backward makes and differentiates itself.
  virtual void on_backward(const Node&, Grads&) {}
};

/// This thread's switches, read on every op.
struct ThreadState {
  bool grad_enabled = true;
  RecordObserver* observer = nullptr;
  const Node* running = nullptr;                                      ///< the node whose backward is on the stack
  const std::function<void(const Tensor&)>* saved_visitor = nullptr;  ///< sees every Saved that is copied
};
inline thread_local constinit ThreadState thread_state;
void destroy_queued_nodes() noexcept;

/// While alive, ops of this thread are neither recorded nor seen: they are the inside of another op.
class Unseen {
 public:
  Unseen() : observer_(std::exchange(thread_state.observer, nullptr)) {}
  ~Unseen() { thread_state.observer = observer_; }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  NoGrad off_;
  RecordObserver* observer_;
};

inline Node* node_of(const Tensor& t) { return t.defined() ? static_cast<Node*>(t.ref()->grad.get()) : nullptr; }
inline bool needs_grad(const Tensor& t) {
  const Node* node = node_of(t);
  return node && node->requires_grad;
}
inline bool needs_grad(const std::vector<Tensor>& ts) {
  for (const Tensor& t : ts)
    if (needs_grad(t)) return true;
  return false;
}
inline std::size_t count_inputs(const Tensor&) { return 1; }
inline std::size_t count_inputs(const std::vector<Tensor>& ts) { return ts.size(); }
inline void append_input(std::vector<Tensor>& all, const Tensor& t) { all.push_back(t); }
inline void append_input(std::vector<Tensor>& all, const std::vector<Tensor>& ts) { all.insert(all.end(), ts.begin(), ts.end()); }

/// ShapeError when there are more than slots are numbered for.
void require_slots(const OpName&, std::size_t outputs);
void connect(Edge&, const Tensor& input);
inline void connect_all(Edge*& edge, const Tensor& t) { connect(*edge++, t); }
inline void connect_all(Edge*& edge, const std::vector<Tensor>& ts) {
  for (const Tensor& t : ts) connect(*edge++, t);
}
/// Makes `output` the node's output `slot`. A handle that others hold too (a saved output) is left alone and replaced by an alias, so that no node
/// can own itself.
void attach(Tensor& output, const Ref<Node>& node, std::size_t slot);
/// The tensor as output of the running node, where it is a saved output of it.
Tensor with_history(const Tensor&);

/// A node and the lambda that is its backward; edges and output descriptions follow in the same block.
template <class F>
class OpNode final : public Node {
 public:
  static Ref<Node> make(const OpName& op, F&& f, std::size_t inputs, std::size_t outputs) {
    void* block = allocate(bytes(inputs, outputs));
    return Ref<Node>::adopt(new (block) OpNode(op, std::move(f), inputs, outputs));
  }

  Grads backward(const BackwardContext& context, std::span<const Tensor> output_grads) override {
    if constexpr (std::is_invocable_v<F&, const BackwardContext&, const Tensor&>)
      return lambda_(context, output_grads[0]);
    else
      return lambda_(context, output_grads);
  }
  // A lambda does not tell what it captured, but a copy of it copies every Saved.
  void visit_saved(const std::function<void(const Tensor&)>& see) const override {
    if (released) return;
    thread_state.saved_visitor = &see;
    { [[maybe_unused]] const F copy(lambda_); }
    thread_state.saved_visitor = nullptr;
  }
  void release_saved() noexcept override {
    if (!released) lambda_.~F();
    released = true;
  }
  void destroy() noexcept override {
    const std::size_t size = bytes(edges.size(), outputs.size());
    this->~OpNode();
    deallocate(this, size);
  }

 private:
  OpNode(const OpName& op, F&& f, std::size_t n_inputs, std::size_t n_outputs) : Node(op), lambda_(std::move(f)) {
    Edge* edge = reinterpret_cast<Edge*>(this + 1);
    for (std::size_t i = 0; i < n_inputs; ++i) new (edge + i) Edge;
    edges = {edge, n_inputs};
    OutputInfo* output = reinterpret_cast<OutputInfo*>(edge + n_inputs);
    for (std::size_t i = 0; i < n_outputs; ++i) new (output + i) OutputInfo;
    outputs = {output, n_outputs};
  }
  ~OpNode() {
    release_saved();
    for (Edge& e : edges) e.~Edge();
  }
  static std::size_t bytes(std::size_t inputs, std::size_t outputs) { return sizeof(OpNode) + inputs * sizeof(Edge) + outputs * sizeof(OutputInfo); }
  static_assert(std::is_trivially_destructible_v<OutputInfo> && alignof(OutputInfo) <= 8 && alignof(Edge) <= 8);

  union {
    F lambda_;
  };
};

/// Whether an op of these inputs, tensors or vectors of them, is recorded: whether a backward may come.
template <class... Inputs>
bool is_recorded(const Inputs&... inputs) {
  return thread_state.grad_enabled && (needs_grad(inputs) || ...);
}

template <class Outputs, class F, class... Inputs>
void record_outputs(const OpName& op, Outputs outputs, F&& f, const Inputs&... inputs) {
  if (thread_state.observer) {
    std::vector<Tensor> all;
    (append_input(all, inputs), ...);
    thread_state.observer->on_record(op, outputs, all);
  }
  if (!is_recorded(inputs...)) return;
  Ref<Node> node = OpNode<std::decay_t<F>>::make(op, std::decay_t<F>(std::forward<F>(f)), (count_inputs(inputs) + ...), outputs.size());
  Edge* edge = node->edges.data();
  (connect_all(edge, inputs), ...);
  for (std::size_t i = 0; i < outputs.size(); ++i) attach(outputs[i], node, i);
}

}  // namespace detail

/// Attaches the derivative to an op's output: `record(name, output, inputs..., lambda)` with inputs that are tensors or vectors of tensors, and a
/// lambda
/// `(const BackwardContext&, const Tensor& output_grad) -> Grads`. Returns the output, untouched when no input needs a gradient or recording
/// is off. Every op passes here, views and constants included. Computing the output must not record (kernels do not; ops do unless under NoGrad).
template <class... InputsAndLambda>
Tensor record(const RecordName& op, Tensor output, InputsAndLambda&&... rest) {
  constexpr std::size_t n = sizeof...(rest) - 1;
  auto all = std::forward_as_tuple(std::forward<InputsAndLambda>(rest)...);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    detail::record_outputs(op, std::span<Tensor>(&output, 1), std::get<n>(std::move(all)), std::get<I>(all)...);
  }
  (std::make_index_sequence<n>());
  return output;
}

/// As above for an op with several outputs; the lambda takes `std::span<const Tensor>`, undefined where an output received no gradient.
template <class... InputsAndLambda>
std::vector<Tensor> record(const RecordName& op, std::vector<Tensor> outputs, InputsAndLambda&&... rest) {
  detail::require_slots(op, outputs.size());
  constexpr std::size_t n = sizeof...(rest) - 1;
  auto all = std::forward_as_tuple(std::forward<InputsAndLambda>(rest)...);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    detail::record_outputs(op, std::span<Tensor>(outputs), std::get<n>(std::move(all)), std::get<I>(all)...);
  }
  (std::make_index_sequence<n>());
  return outputs;
}

namespace detail {

/// One node's backward as the engine runs it: counted, checked for dtype and shape, and fitted to the inputs' shapes; undefined where none is wanted.
Grads checked_backward(Node&, const BackwardContext&, std::span<const Tensor> output_grads);

/// All nodes that the tensors depend on, oldest first.
std::vector<Node*> nodes_behind(const std::vector<Tensor>&);

/// The gradients of a fused op inside a backward that creates a graph: differentiates `twin`, the same function composed from ops, at `inputs`. Each
/// input slot gets an alias of its own, so that a tensor standing in two slots gets each slot's gradient once.
Grads differentiate_twin(const BackwardContext&, const std::vector<Tensor>& inputs, const Tensor& output_grad,
                         const std::function<Tensor(const std::vector<Tensor>&)>& twin);

}  // namespace detail
}  // namespace heed
