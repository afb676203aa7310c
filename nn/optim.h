#pragma once

#include <array>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../autograd/named_tensors.h"
#include "../tensor/tensor.h"
#include "module.h"

namespace heed::nn {

/// What an optimizer or `clip_grad_norm` works on: tensors, or named tensors.
class ParameterList {
 public:
  ParameterList(const std::vector<Tensor>& tensors);
  ParameterList(NamedTensors tensors) : items_(std::move(tensors)) {}
  ParameterList(std::initializer_list<Tensor> tensors) : ParameterList(std::vector<Tensor>(tensors)) {}
  ParameterList(std::initializer_list<NamedTensors::value_type> tensors) : items_(tensors) {}

  /// The name is empty where none was given.
  const NamedTensors& items() const { return items_; }

 private:
  NamedTensors items_;
};

struct AdamWOptions;

/// Parameters with options of their own: `AdamW opt({{matrices, {.weight_decay = 0.1}}, {others, {.weight_decay = 0}}})`.
template <class Options>
struct ParameterGroup {
  ParameterList params;
  Options options = {};
};

/// Two groups with the names of `m`: tensors of two dims and more (matrices, tables) under `options`, and those of fewer (biases, norms), whose
/// decay would only bias them, under `options` with weight_decay 0. A tied tensor is listed once, under the first of its names; a group without
/// tensors is left out.
///
///   nn::AdamW opt(nn::decay_groups(model, {.lr = 3e-4, .weight_decay = 0.1}));
template <Module M, class Options = AdamWOptions>
std::vector<ParameterGroup<Options>> decay_groups(const M& m, const Options& options = {}) {
  NamedTensors decayed, others;
  for (const auto& named : named_parameters(m)) (named.second.dim() >= 2 ? decayed : others).push_back(named);
  Options without = options;
  without.weight_decay = 0;
  std::vector<ParameterGroup<Options>> groups;
  if (!decayed.empty()) groups.push_back({decayed, options});
  if (!others.empty()) groups.push_back({others, without});
  return groups;
}

/// What SGD, Adam and AdamW share. Can be moved, not copied.
///
/// Parameters are leaves of f32 or f64 and may be views. A name, or else the position among all parameters, says in the state which is which. A
/// parameter that is given twice is stepped once, in its first group. Refused with an Error: no parameters at all, tensors that are undefined, not
/// leaves, not floats, or whose elements share memory, two tensors of one name, and options that make no sense (a rate or decay below 0, betas
/// outside of [0, 1), nesterov without momentum, NaN).
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Moves every parameter that has a gradient; the others stay as they are and get no state. The state of a parameter that `nn::to` has
  /// converted since is converted first.
  void step();
  /// Makes the `.grad` of every parameter undefined.
  void zero_grad();

  /// The learning rate of all groups, or of one. IndexError for a group that does not exist.
  void set_lr(double lr);
  void set_lr(double lr, std::size_t group);
  double lr(std::size_t group = 0) const;

  /// A copy of the state: NAME.momentum_buffer with SGD and momentum; NAME.step (i64), NAME.exp_avg and NAME.exp_avg_sq with Adam and AdamW.
  /// Nothing for parameters that have not been stepped. Options are not part of it.
  std::map<std::string, Tensor> state_dict() const;
  /// Takes over a state, so that steps go on as they would have; parameters without entries start afresh. Error with a table of all names, shapes and
  /// dtypes that do not fit, before anything is changed.
  void load_state_dict(const std::map<std::string, Tensor>&);

 protected:
  struct Group {
    ParameterList params;
    double lr;
    std::vector<const char*> buffers;  ///< names of the tensors that a parameter's state has, at most 2
    bool counts_steps;
  };
  struct Item {
    std::string name;
    Tensor parameter;
    std::size_t group;
    Index steps = 0;
    std::array<Tensor, 2> buffers;  ///< row-major; undefined before the first step
  };

  /// `op` stands first in error texts.
  Optimizer(const char* op, std::vector<Group> groups);
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

 private:
  /// Moves `p`, given gradient and buffers of its dtype, all row-major.
  virtual void update(Item&, Tensor& p, const Tensor& grad) = 0;
  std::size_t checked_group(std::size_t group) const;
  double checked_rate(double lr) const;

  const char* op_;
  std::vector<Group> groups_;
  std::vector<Item> items_;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// Stochastic gradient descent. g += weight_decay p; b = momentum b + g, at first b = g; p -= lr b, with nesterov p -= lr (g + momentum b).
class SGD final : public Optimizer {
 public:
  SGD(const ParameterList&, const SGDOptions& = {});
  explicit SGD(const std::vector<ParameterGroup<SGDOptions>>&);

 private:
  void update(Item&, Tensor& p, const Tensor& grad) override;
  std::vector<SGDOptions> options_;
};

struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
};

/// Kingma and Ba, 2015. g += weight_decay p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
/// p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) at step t = 1, 2, ...
class Adam : public Optimizer {
 public:
  Adam(const ParameterList&, const AdamOptions& = {});
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>&);

 protected:
  enum class Decay { in_gradient, decoupled };
  Adam(const char* op, const std::vector<ParameterGroup<AdamOptions>>&, Decay);

 private:
  void update(Item&, Tensor& p, const Tensor& grad) override;
  std::vector<AdamOptions> options_;
  Decay decay_;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

/// Adam with p -= lr weight_decay p in place of the decay in the gradient: Loshchilov and Hutter, 2019.
class AdamW final : public Adam {
 public:
  AdamW(const ParameterList&, const AdamWOptions& = {});
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>&);
};

/// Scales all gradients by max_norm / (norm + 1e-6) where that is below 1, as PyTorch; returns the norm before: the root of the sum of the squares of
/// all gradients, each tensor once, without overflow or underflow on the way. A norm that is not finite leaves the gradients as they are.
/// Error for a max_norm that is negative or NaN. The bits do not depend on the number of threads.
double clip_grad_norm(const ParameterList&, double max_norm);

}  // namespace heed::nn
