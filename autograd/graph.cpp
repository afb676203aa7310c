#include "graph.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../tensor/raise.h"
#include "op.h"

namespace heed {

std::vector<detail::Node*> detail::nodes_behind(const std::vector<Tensor>& tensors) {
  std::unordered_set<const Node*> seen;
  std::vector<Node*> stack, order;
  for (const Tensor& t : tensors)
    if (Node* root = node_of(t)) stack.push_back(root);
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) continue;
    order.push_back(node);
    for (const Edge& e : node->edges)
      if (e.node) stack.push_back(e.node.get());
  }
  std::sort(order.begin(), order.end(), [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  return order;
}

namespace {

using detail::Edge;
using detail::Node;

/// Storages that nodes save; a leaf's own is there anyway.
class SavedStorages {
 public:
  std::size_t add(const Node& node) {
    std::size_t bytes = 0;
    node.visit_saved([&](const Tensor& t) {
      const Node* made_by = detail::node_of(t);
      if (made_by && made_by->is_leaf) return;
      if (seen_.insert(t.ref()->storage.get()).second) bytes += t.ref()->storage->bytes();
    });
    return bytes;
  }

 private:
  std::set<const detail::Storage*> seen_;
};

std::string quoted(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

std::string bytes_text(std::size_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  return bytes < 10'000'000 ? fmt::format("{:.0f} kB", static_cast<double>(bytes) / 1e3) : fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace

std::string to_dot(const Tensor& t, const NamedTensors& names) {
  std::string out = "digraph heed {\n  rankdir=LR;\n  node [fontname=\"sans-serif\", fontsize=10];\n";
  std::unordered_map<const Node*, std::size_t> number;
  std::unordered_map<const Node*, std::string> given;
  for (const auto& [name, named] : names)
    if (const Node* leaf = detail::node_of(named); leaf && leaf->is_leaf) given.try_emplace(leaf, name);
  SavedStorages saved;
  std::size_t leaves = 0, all_bytes = 0;
  for (const Node* node : detail::nodes_behind({t})) {
    const std::size_t n = number.emplace(node, number.size()).first->second;
    std::string label = node->name;
    for (std::size_t i = 0; i < node->outputs.size(); ++i) {
      std::string name = node->extras ? node->extras->names[i] : std::string();
      if (const auto found = given.find(node); found != given.end()) name = found->second;
      if (node->is_leaf && !name.empty())
        label = quoted(name);
      else if (!name.empty())
        label += " " + quoted(name);
      label += fmt::format("\\n{} {}", node->outputs[i].dtype, node->outputs[i].shape);
    }
    if (const std::size_t bytes = saved.add(*node)) label += fmt::format("\\nsaves {}", bytes_text(bytes)), all_bytes += bytes;
    leaves += node->is_leaf;
    out += fmt::format("  n{} [label=\"{}\", shape={}];\n", n, label, node->is_leaf ? "ellipse" : "box");
    for (const Edge& e : node->edges)
      if (e.node) out += fmt::format("  n{} -> n{};\n", number.at(e.node.get()), n);
  }
  return out + fmt::format("  label=\"{} ops, {} leaves, saves {}\";\n}}\n", number.size() - leaves, leaves, bytes_text(all_bytes));
}

std::size_t saved_bytes(const Tensor& t) {
  SavedStorages saved;
  std::size_t bytes = 0;
  for (const Node* node : detail::nodes_behind({t})) bytes += saved.add(*node);
  return bytes;
}

}  // namespace heed
