#include "optim.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "../autograd/grad_mode.h"
#include "../tensor/factory.h"
#include "../tensor/kernels/optimizer.h"
#include "../tensor/raise.h"
#include "row_major.h"
#include "state_differences.h"

namespace heed::nn {
namespace {

using detail::raise;

void check_not_negative(const char* op, const char* what, double value) {
  if (!(value >= 0 && std::isfinite(value))) raise<Error>("{}: {} is negative or not finite: {}", op, what, value);
}

void check_beta(const char* op, double beta) {
  if (!(beta >= 0 && beta < 1)) raise<Error>("{}: a beta is not in [0, 1): {}", op, beta);
}

template <class Options>
std::vector<Options> options_of(const std::vector<ParameterGroup<Options>>& groups) {
  std::vector<Options> out;
  for (const auto& g : groups) out.push_back(g.options);
  return out;
}

}  // namespace

ParameterList::ParameterList(const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors) items_.emplace_back(std::string(), t);
}

Optimizer::Optimizer(const char* op, std::vector<Group> groups) : op_(op), groups_(std::move(groups)) {
  std::set<const detail::TensorImpl*> seen;
  std::set<std::string> names;
  std::size_t position = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    checked_rate(groups_[group].lr);
    for (const auto& [given, t] : groups_[group].params.items()) {
      std::string name = given.empty() ? std::to_string(position) : given;
      ++position;
      if (!t.defined()) raise<Error>("{}: parameter {} is undefined", op, name);
      if (!seen.insert(t.ref().get()).second) continue;
      if (!detail::is_float(t.dtype())) raise<DTypeError>("{}: parameter {} is {}, not f32 or f64", op, name, t.dtype());
      if (!t.is_leaf()) raise<GradError>("{}: parameter {} is not a leaf: it was computed", op, name);
      if (detail::overlaps_itself(t.ref()->layout))
        raise<ShapeError>("{}: elements of parameter {} share memory: shape {}, strides {}", op, name, t.shape(), t.strides());
      if (!names.insert(name).second) raise<Error>("{}: two parameters have one name: {}", op, name);
      items_.push_back({std::move(name), t, group, 0, {}});
    }
    groups_[group].params = std::vector<Tensor>();  // the items have them
  }
  if (items_.empty()) raise<Error>("{}: no parameters", op);
}

void Optimizer::step() {
  const NoGrad off;
  for (Item& item : items_) {
    const Tensor grad = item.parameter.grad();
    if (!grad.defined()) continue;
    for (Tensor& b : item.buffers)
      if (b.defined()) b = b.to(item.parameter.dtype());
    detail::change_row_major(item.parameter, [&](Tensor& p) { update(item, p, detail::contiguous_data(grad)); });
  }
}

void Optimizer::zero_grad() {
  for (Item& item : items_) item.parameter.zero_grad();
}

double Optimizer::checked_rate(double lr) const {
  check_not_negative(op_, "lr", lr);
  return lr;
}

std::size_t Optimizer::checked_group(std::size_t group) const {
  if (group >= groups_.size()) raise<IndexError>("{}: there is no group {}: {} groups", op_, group, groups_.size());
  return group;
}

void Optimizer::set_lr(double lr) {
  checked_rate(lr);
  for (Group& g : groups_) g.lr = lr;
}
void Optimizer::set_lr(double lr, std::size_t group) { groups_[checked_group(group)].lr = checked_rate(lr); }
double Optimizer::lr(std::size_t group) const { return groups_[checked_group(group)].lr; }

std::map<std::string, Tensor> Optimizer::state_dict() const {
  std::map<std::string, Tensor> out;
  for (const Item& item : items_) {
    const Group& group = groups_[item.group];
    for (std::size_t i = 0; i < group.buffers.size(); ++i)
      if (item.buffers[i].defined()) out[item.name + "." + group.buffers[i]] = item.buffers[i].clone();
    if (group.counts_steps && item.steps > 0) out[item.name + ".step"] = full({}, item.steps, i64);
  }
  return out;
}

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& state) {
  const NoGrad off;
  detail::StateDifferences differences;
  std::set<std::string> known;
  std::vector<Item> next = items_;
  for (Item& item : next) {
    const Group& group = groups_[item.group];
    std::vector<std::string> missing;
    const auto find = [&](const std::string& key) {
      known.insert(key);
      const auto found = state.find(key);
      if (found == state.end()) missing.push_back(key);
      return found == state.end() ? Tensor() : found->second;
    };
    for (std::size_t i = 0; i < group.buffers.size(); ++i) {
      const std::string key = item.name + "." + group.buffers[i];
      const Tensor given = find(key);
      item.buffers[i] = {};
      if (!given.defined()) continue;
      if (!detail::is_float(given.dtype()) || given.shape() != item.parameter.shape())
        differences.mismatched(
            key, fmt::format("{} {} in the optimizer, {} {} given", item.parameter.dtype(), item.parameter.shape(), given.dtype(), given.shape()));
      else
        item.buffers[i] = given.detach().to(item.parameter.dtype()).clone();
    }
    if (group.counts_steps) {
      const std::string key = item.name + ".step";
      const Tensor given = find(key);
      item.steps = 0;
      if (given.defined()) {
        const double steps = given.numel() == 1 ? given.item<double>() : -1;
        if (steps >= 0 && steps == std::floor(steps) && steps < 0x1p53)
          item.steps = static_cast<Index>(steps);
        else
          differences.mismatched(key,
                                 fmt::format("a count of steps in the optimizer, {} given",
                                             given.numel() == 1 ? fmt::format("{}", steps) : fmt::format("{} {}", given.dtype(), given.shape())));
      }
    }
    const std::size_t all = group.buffers.size() + (group.counts_steps ? 1 : 0);
    if (missing.size() != all)
      for (const std::string& key : missing) differences.missing(key, fmt::format("of a parameter of shape {}", item.parameter.shape()));
  }
  for (const auto& [name, t] : state) {
    if (!t.defined())
      differences.mismatched(name, "given undefined");
    else if (!known.count(name))
      differences.unexpected(name, fmt::format("{} {}", t.dtype(), t.shape()));
  }
  if (!differences.empty()) raise<Error>("{}: load_state_dict: the state is not of these parameters:\n{}", op_, differences.table());
  items_ = std::move(next);
}

// SGD

namespace {

template <class Groups>
void check_sgd(const Groups& groups) {
  for (const auto& g : groups) {
    check_not_negative("SGD", "momentum", g.options.momentum);
    check_not_negative("SGD", "weight_decay", g.options.weight_decay);
    if (g.options.nesterov && g.options.momentum == 0) raise<Error>("SGD: nesterov without momentum");
  }
}

}  // namespace

SGD::SGD(const ParameterList& params, const SGDOptions& options) : SGD(std::vector<ParameterGroup<SGDOptions>>{{params, options}}) {}

SGD::SGD(const std::vector<ParameterGroup<SGDOptions>>& groups)
    : Optimizer("SGD",
                [&] {
                  check_sgd(groups);
                  std::vector<Group> out;
                  for (const auto& g : groups)
                    out.push_back({g.params, g.options.lr,
                                   g.options.momentum == 0 ? std::vector<const char*>() : std::vector<const char*>{"momentum_buffer"}, false});
                  return out;
                }()),
      options_(options_of(groups)) {}

void SGD::update(Item& item, Tensor& p, const Tensor& grad) {
  const SGDOptions& o = options_[item.group];
  Tensor& buffer = item.buffers[0];
  const bool has_momentum = o.momentum != 0, first = !buffer.defined();
  if (has_momentum && first) buffer = detail::make_empty(p.shape(), p.dtype());
  detail::dispatch_float(p.dtype(), [&]<class T>() {
    kernels::sgd<T>(p.mutable_data<T>(), grad.data<T>(), has_momentum ? buffer.mutable_data<T>() : nullptr, p.numel(),
                    {lr(item.group), o.momentum, o.weight_decay, o.nesterov, first});
  });
}

// Adam and AdamW

namespace {

std::vector<ParameterGroup<AdamOptions>> as_adam(const std::vector<ParameterGroup<AdamWOptions>>& groups) {
  std::vector<ParameterGroup<AdamOptions>> out;
  for (const auto& [params, o] : groups) out.push_back({params, {o.lr, o.betas, o.eps, o.weight_decay}});
  return out;
}

}  // namespace

Adam::Adam(const char* op, const std::vector<ParameterGroup<AdamOptions>>& groups, Decay decay)
    : Optimizer(op,
                [&] {
                  std::vector<Group> out;
                  for (const auto& [params, o] : groups) {
                    check_beta(op, o.betas.first);
                    check_beta(op, o.betas.second);
                    check_not_negative(op, "eps", o.eps);
                    check_not_negative(op, "weight_decay", o.weight_decay);
                    out.push_back({params, o.lr, {"exp_avg", "exp_avg_sq"}, true});
                  }
                  return out;
                }()),
      options_(options_of(groups)),
      decay_(decay) {}

Adam::Adam(const ParameterList& params, const AdamOptions& options) : Adam(std::vector<ParameterGroup<AdamOptions>>{{params, options}}) {}
Adam::Adam(const std::vector<ParameterGroup<AdamOptions>>& groups) : Adam("Adam", groups, Decay::in_gradient) {}
AdamW::AdamW(const ParameterList& params, const AdamWOptions& options) : AdamW(std::vector<ParameterGroup<AdamWOptions>>{{params, options}}) {}
AdamW::AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups) : Adam("AdamW", as_adam(groups), Decay::decoupled) {}

void Adam::update(Item& item, Tensor& p, const Tensor& grad) {
  const AdamOptions& o = options_[item.group];
  for (Tensor& b : item.buffers)
    if (!b.defined()) b = zeros(p.shape(), p.dtype());
  ++item.steps;
  detail::dispatch_float(p.dtype(), [&]<class T>() {
    kernels::adam<T>(
        p.mutable_data<T>(), grad.data<T>(), item.buffers[0].mutable_data<T>(), item.buffers[1].mutable_data<T>(), p.numel(),
        {lr(item.group), o.betas.first, o.betas.second, o.eps, o.weight_decay, decay_ == Decay::decoupled, static_cast<double>(item.steps)});
  });
}

}  // namespace heed::nn
