#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include "../autograd/grad_mode.h"
#include "../tensor/raise.h"
#include "module.h"
#include "state_differences.h"

namespace heed::detail {
namespace {

using State = std::map<std::string, Tensor>;

std::string describe(const Tensor& t) { return fmt::format("{} {}", t.dtype(), t.shape()); }

/// Whether both would write the same bits into a tensor of the dtype.
bool same_elements(const Tensor& a, const Tensor& b, DType dtype) {
  if (a.ref() == b.ref()) return true;
  if (a.shape() != b.shape()) return false;
  const NoGrad off;
  const Tensor x = contiguous_data(a.to(dtype)), y = contiguous_data(b.to(dtype));
  return dispatch(dtype, [&]<class T>() {
    return std::equal(x.data<T>(), x.data<T>() + x.numel(), y.data<T>(), [](const T& p, const T& q) { return std::memcmp(&p, &q, sizeof(T)) == 0; });
  });
}

/// A tensor of the module, under all of its names, and what is to be written into it.
struct Target {
  Tensor tensor;
  std::vector<std::string> names;
  Tensor source;
};

std::vector<Target> targets_of(const nn::Visitor& v) {
  std::vector<Target> targets;
  std::unordered_map<const TensorImpl*, std::size_t> places;
  for (const nn::Visitor::Entry& e : v.tensors()) {
    const auto [place, is_new] = places.try_emplace(e.tensor->ref().get(), targets.size());
    if (is_new) targets.push_back({*e.tensor, {}, {}});
    targets[place->second].names.push_back(e.path);
  }
  return targets;
}

/// Why the tensor cannot be written in place, or nothing.
std::string obstacle(const Tensor& t) {
  if (!t.is_leaf()) return "in the module it is not a leaf";
  if (overlaps_itself(t.ref()->layout)) return "in the module its elements share memory";
  return {};
}

/// Decides what is written where; fills in `found` and `differences`.
void plan(std::vector<Target>& targets, const State& state, bool strict, nn::LoadReport& found, StateDifferences& differences) {
  std::set<std::string> known;
  for (Target& target : targets) {
    const std::string* from = nullptr;
    for (const std::string& name : target.names) {
      known.insert(name);
      const auto given = state.find(name);
      if (given == state.end()) continue;
      const Tensor& t = given->second;
      if (!t.defined())
        differences.mismatched(name, "given undefined");
      else if (t.shape() != target.tensor.shape() ||
               (t.dtype() != target.tensor.dtype() && !(is_float(t.dtype()) && is_float(target.tensor.dtype()))))
        differences.mismatched(name, fmt::format("{} in the module, {} given", describe(target.tensor), describe(t)));
      else if (target.source.defined() && !same_elements(target.source, t, target.tensor.dtype()))
        differences.mismatched(name, fmt::format("tied to {} in the module, other elements given", *from));
      else if (!target.source.defined())
        target.source = t, from = &name;
    }
    const std::string why = obstacle(target.tensor);
    if (!why.empty() && target.source.defined()) differences.mismatched(*from, why);
    // A tied tensor is there when one of its names is.
    if (std::none_of(target.names.begin(), target.names.end(), [&](const std::string& name) { return state.count(name) > 0; })) {
      found.missing.insert(found.missing.end(), target.names.begin(), target.names.end());
      if (strict)
        for (const std::string& name : target.names) differences.missing(name, describe(target.tensor));
    }
  }
  for (const auto& [name, t] : state) {
    if (known.count(name)) continue;
    found.unexpected.push_back(name);
    if (strict) differences.unexpected(name, t.defined() ? describe(t) : "undefined");
  }
}

/// A source over memory that is written to as well is copied first, so that the order does not matter.
void write(std::vector<Target>& targets) {
  const NoGrad off;
  std::set<const Storage*> written;
  for (const Target& t : targets) written.insert(t.tensor.ref()->storage.get());
  for (Target& t : targets)
    if (t.source.defined() && written.count(t.source.ref()->storage.get())) t.source = t.source.clone();
  for (Target& t : targets)
    if (t.source.defined()) t.tensor.copy_(t.source);
}

template <class E>
nn::LoadReport load_checked(const std::string& op, const nn::Visitor& v, const State& state, bool strict) {
  std::vector<Target> targets = targets_of(v);
  nn::LoadReport found;
  StateDifferences differences;
  plan(targets, state, strict, found, differences);
  if (!differences.empty()) raise<E>("{}: the tensors are not those of the module:\n{}", op, differences.table());
  write(targets);
  return found;
}

}  // namespace

std::string StateDifferences::table() const {
  std::size_t width = 0;
  for (const Row& r : rows_) width = std::max(width, r.name.size());
  std::vector<Row> rows = rows_;
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return std::string_view(a.kind) < b.kind; });
  std::string out;
  for (const Row& r : rows) out += fmt::format("{}  {:<10}  {:<{}}  {}", out.empty() ? "" : "\n", r.kind, r.name, width, r.what);
  return out;
}

nn::LoadReport load_state_dict(const nn::Visitor& v, const State& state, bool strict) {
  return load_checked<Error>("load_state_dict", v, state, strict);
}

nn::LoadReport load_module(const nn::Visitor& v, const std::filesystem::path& path, bool strict) {
  return load_checked<IoError>("load: " + path.string(), v, load_safetensors(path), strict);
}

}  // namespace heed::detail
