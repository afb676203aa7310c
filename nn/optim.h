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
  /// `nn::parameters(m)`, with the names given by `named`.
  ParameterList(const std::vector<Tensor>& tensors);
  /// `nn::named_parameters(m)`
  ParameterList(NamedTensors tensors) : items_(std::move(tensors)) {}
  /// `{w, b}`
  ParameterList(std::initializer_list<Tensor> tensors) : ParameterList(std::vector<Tensor>(tensors)) {}
  /// `{{"w", w}, {"b", b}}`
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
  ParameterList params;  ///< stepped together
  Options options = {};  ///< of the optimizer: SGDOptions, AdamOptions, AdamWOptions
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

  void set_lr(double lr);                     ///< the learning rate of all groups
  void set_lr(double lr, std::size_t group);  ///< of one; IndexError for a group that does not exist
  double lr(std::size_t group = 0) const;     ///< of one; IndexError for a group that does not exist

  /// A copy of the state: NAME.momentum_buffer with SGD and momentum; NAME.step (i64), NAME.exp_avg and NAME.exp_avg_sq with Adam and AdamW.
  /// Nothing for parameters that have not been stepped. Options are not part of it.
  std::map<std::string, Tensor> state_dict() const;
  /// Takes over a state, so that steps go on as they would have; parameters without entries start afresh. Error with a table of all names, shapes and
  /// dtypes that do not fit, before anything is changed.
  void load_state_dict(const std::map<std::string, Tensor>&);

 protected:
  /// What an optimizer says of one of its groups.
  struct Group {
    ParameterList params;              ///< as given
    double lr;                         ///< to begin with
    std::vector<const char*> buffers;  ///< names of the tensors that a parameter's state has, at most 2
    bool counts_steps;                 ///< whether the state has NAME.step
  };
  /// A parameter and its state.
  struct Item {
    std::string name;               ///< given, or the position
    Tensor parameter;               ///< the leaf itself
    std::size_t group;              ///< its first one
    Index steps = 0;                ///< taken so far
    std::array<Tensor, 2> buffers;  ///< row-major; undefined before the first step
  };

  /// `op` stands first in error texts.
  Optimizer(const char* op, std::vector<Group> groups);
  Optimizer(Optimizer&&) = default;             ///< parameters and state move along
  Optimizer& operator=(Optimizer&&) = default;  ///< as the constructor

 private:
  /// Moves `p`, given gradient and buffers of its dtype, all row-major.
  virtual void update(Item&, Tensor& p, const Tensor& grad) = 0;
  std::size_t checked_group(std::size_t group) const;
  double checked_rate(double lr) const;

  const char* op_;
  std::vector<Group> groups_;
  std::vector<Item> items_;
};

/// Of SGD, as in its formula.
struct SGDOptions {
  double lr = 1e-3;         ///< learning rate
  double momentum = 0;      ///< share of the last step that goes on; 0 keeps no state
  double weight_decay = 0;  ///< added to the gradient, times the parameter
  bool nesterov = false;    ///< looks one step ahead; wants momentum
};

/// Stochastic gradient descent. g += weight_decay p; b = momentum b + g, at first b = g; p -= lr b, with nesterov p -= lr (g + momentum b).
class SGD final : public Optimizer {
 public:
  SGD(const ParameterList&, const SGDOptions& = {});             ///< all parameters alike
  explicit SGD(const std::vector<ParameterGroup<SGDOptions>>&);  ///< each group with its own options

 private:
  void update(Item&, Tensor& p, const Tensor& grad) override;
  std::vector<SGDOptions> options_;
};

/// Of Adam, as in its formula.
struct AdamOptions {
  double lr = 1e-3;                                ///< learning rate
  std::pair<double, double> betas = {0.9, 0.999};  ///< b1 and b2, the memory of m and v
  double eps = 1e-8;                               ///< beside the root, so that nothing is divided by 0
  double weight_decay = 0;                         ///< added to the gradient, times the parameter
};

/// Kingma and Ba, 2015. g += weight_decay p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
/// p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) at step t = 1, 2, ...
///
/// m and v have the parameter's dtype. Where v leaves its range (in f32, with the usual b2, at a gradient above 5e20) it is infinite, and the
/// parameter NaN from then on, where PyTorch leaves the parameter as it is. Squares that vanish (in f32 those of gradients below 1e-18) change
/// nothing beside an eps of 1e-15 or more; with a smaller one the root has few digits, or is 0.
class Adam : public Optimizer {
 public:
  Adam(const ParameterList&, const AdamOptions& = {});             ///< all parameters alike
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>&);  ///< each group with its own options

 protected:
  /// Where weight decay goes.
  enum class Decay {
    in_gradient,  ///< Adam
    decoupled     ///< AdamW
  };
  /// `op` stands first in error texts.
  Adam(const char* op, const std::vector<ParameterGroup<AdamOptions>>&, Decay);

 private:
  void update(Item&, Tensor& p, const Tensor& grad) override;
  std::vector<AdamOptions> options_;
  Decay decay_;
};

/// Of AdamW, as in its formula.
struct AdamWOptions {
  double lr = 1e-3;                                ///< learning rate
  std::pair<double, double> betas = {0.9, 0.999};  ///< b1 and b2, the memory of m and v
  double eps = 1e-8;                               ///< beside the root, so that nothing is divided by 0
  double weight_decay = 1e-2;                      ///< of the parameter itself, times the learning rate
};

/// Adam with p -= lr weight_decay p in place of the decay in the gradient: Loshchilov and Hutter, 2019.
class AdamW final : public Adam {
 public:
  AdamW(const ParameterList&, const AdamWOptions& = {});             ///< all parameters alike
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>&);  ///< each group with its own options
};

/// Scales all gradients by max_norm / (norm + 1e-6) where that is below 1, as PyTorch; returns the norm before: the root of the sum of the squares of
/// all gradients, each tensor once, without overflow or underflow on the way. A norm that is not finite leaves the gradients as they are.
/// Error for a max_norm that is negative or NaN. The bits do not depend on the number of threads.
double clip_grad_norm(const ParameterList&, double max_norm);

}  // namespace heed::nn
