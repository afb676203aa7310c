#include "module.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "../autograd/op.h"
#include "../tensor/raise.h"

namespace heed {
namespace nn {

void Visitor::add(std::string_view name, Tensor& tensor, bool is_buffer) {
  if (tensor.defined()) tensors_.push_back({prefix_ + std::string(name), &tensor, is_buffer});
}

void Visitor::check_names() const {
  std::vector<std::string_view> names;
  for (const Entry& e : tensors_) names.push_back(e.path);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) detail::raise<Error>("visit: two members have one name: {}", *twice);
}

}  // namespace nn

namespace detail {
namespace {

/// Calls `f` with the first entry of every tensor: tied ones once.
template <class F>
void for_each_tensor(const nn::Visitor& v, F f) {
  std::unordered_set<const TensorImpl*> seen;
  for (const nn::Visitor::Entry& e : v.tensors())
    if (seen.insert(e.tensor->ref().get()).second) f(e);
}

/// The same tensor over other elements. The version goes on from the old storage's, so that what was saved for backward notices.
void exchange_elements(Tensor& t, const Tensor& with) noexcept {
  TensorImpl& to = *t.ref();
  const TensorImpl& from = *with.ref();
  from.storage->continue_versions(*to.storage);
  to.dtype = from.dtype;
  to.contiguous = from.contiguous;
  to.layout = from.layout;
  to.storage = from.storage;
  if (Node* leaf = node_of(t)) leaf->outputs[0].dtype = from.dtype;
}

}  // namespace

NamedTensors named_parameters(const nn::Visitor& v) {
  NamedTensors out;
  for_each_tensor(v, [&](const nn::Visitor::Entry& e) {
    if (!e.is_buffer) out.emplace_back(e.path, *e.tensor);
  });
  return out;
}

std::vector<Tensor> parameters(const nn::Visitor& v) {
  std::vector<Tensor> out;
  for (auto& named : named_parameters(v)) out.push_back(std::move(named.second));
  return out;
}

std::map<std::string, Tensor> state_dict(const nn::Visitor& v) {
  std::map<std::string, Tensor> out;
  std::unordered_map<const TensorImpl*, Tensor> aliases;
  for (const nn::Visitor::Entry& e : v.tensors()) {
    Tensor& alias = aliases[e.tensor->ref().get()];
    if (!alias.defined()) alias = e.tensor->detach();
    out[e.path] = alias;
  }
  return out;
}

Index num_parameters(const nn::Visitor& v) {
  Index n = 0;
  for (const Tensor& p : parameters(v)) n += p.numel();
  return n;
}

void convert_module(const nn::Visitor& v, DType dtype) {
  if (!is_float(dtype)) raise<DTypeError>("nn::to: wants f32 or f64, not {}", dtype);
  struct Change {
    Tensor tensor, elements, grad;
  };
  std::vector<Change> changes;
  const NoGrad off;
  for_each_tensor(v, [&](const nn::Visitor::Entry& e) {
    const Tensor& t = *e.tensor;
    if (!is_float(t.dtype()) || t.dtype() == dtype) return;
    if (!t.is_leaf()) raise<GradError>("nn::to: only leaves are converted in place: {} is the output of {}", e.path, node_of(t)->name);
    changes.push_back({t, t.to(dtype), t.grad().defined() ? t.grad().to(dtype) : Tensor()});
  });
  for (Change& c : changes) {
    exchange_elements(c.tensor, c.elements);
    if (c.grad.defined()) static_cast<Leaf*>(node_of(c.tensor))->grad = c.grad;
  }
}

void unshare_tensors(const nn::Visitor& v) {
  std::unordered_map<const TensorImpl*, Tensor> copies;
  for (const nn::Visitor::Entry& e : v.tensors()) {
    const Tensor before = *e.tensor;  // keeps the key's address taken
    Tensor& copy = copies[before.ref().get()];
    if (!copy.defined()) {
      const NoGrad off;
      copy = before.clone();
      if (before.requires_grad()) copy.requires_grad_();
      if (std::string name = before.name(); !name.empty()) copy.named(std::move(name));
    }
    *e.tensor = copy;
  }
}

std::vector<std::string> missing_grads(const nn::Visitor& v) {
  std::vector<std::string> out;
  for (const auto& [name, p] : named_parameters(v))
    if (p.requires_grad() && !p.grad().defined()) out.push_back(name);
  return out;
}

std::string summary(const nn::Visitor& v) {
  struct Row {
    std::string path, shape, dtype, note;
    Index parameters = 0, bytes = 0;
  };
  std::vector<Row> rows;
  Row total{.path = "total", .shape = {}, .dtype = {}, .note = {}};
  std::unordered_map<std::string, std::optional<std::size_t>> modules;  // those that have modules of their own, and their rows
  const auto for_modules_around = [](const std::string& path, std::size_t end, auto f) {
    for (std::size_t dot = path.find('.'); dot < end; dot = path.find('.', dot + 1)) f(path.substr(0, dot));
  };
  for (const nn::Visitor::Entry& e : v.tensors())
    if (const std::size_t own = e.path.rfind('.'); own != std::string::npos)
      for_modules_around(e.path, own, [&](std::string module) { modules.try_emplace(std::move(module)); });
  std::unordered_map<const TensorImpl*, std::string> first_names;
  for (const nn::Visitor::Entry& e : v.tensors()) {
    const Tensor& t = *e.tensor;
    const auto first = first_names.try_emplace(t.ref().get(), e.path);
    const bool is_new = first.second;
    Row row{e.path, fmt::format("{}", t.shape()), name(t.dtype()), {}, t.numel(), t.numel() * static_cast<Index>(size_of(t.dtype()))};
    if (!is_new)
      row.note = "  tied to " + first.first->second;
    else if (e.is_buffer)
      row.note = "  buffer";
    else if (!t.requires_grad())
      row.note = "  frozen";
    const auto count = [&](Row& sum) {
      if (!is_new) return;
      sum.bytes += row.bytes;
      if (!e.is_buffer) sum.parameters += row.parameters;
    };
    for_modules_around(e.path, e.path.size(), [&](const std::string& path) {
      const auto module = modules.find(path);
      if (module == modules.end()) return;
      if (!module->second) module->second = rows.size(), rows.push_back({path, {}, {}, {}});
      count(rows[*module->second]);
    });
    count(total);
    rows.push_back(std::move(row));
  }
  rows.push_back(total);
  std::size_t path_width = 4, shape_width = 5;  // "path", "shape"
  for (const Row& r : rows) path_width = std::max(path_width, r.path.size()), shape_width = std::max(shape_width, r.shape.size());
  std::string out = fmt::format("{:<{}}  {:<{}}  {:<5}  {:>12}  {:>14}\n", "path", path_width, "shape", shape_width, "dtype", "parameters", "bytes");
  for (const Row& r : rows)
    out += fmt::format("{:<{}}  {:<{}}  {:<5}  {:>12}  {:>14}{}\n", r.path, path_width, r.shape, shape_width, r.dtype, r.parameters, r.bytes, r.note);
  return out;
}

}  // namespace detail
}  // namespace heed
