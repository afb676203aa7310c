#pragma once

#include <array>
#include <concepts>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../autograd/named_tensors.h"
#include "../tensor/io/safetensors.h"
#include "../tensor/tensor.h"

// A layer is a plain value with an `operator()` and one `visit` that lists its members; everything that is done to layers as such is a
// function here.
//
//   struct Classifier {
//     nn::Linear hidden{64, 32}, out{32, 10};
//     Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
//     void visit(nn::Visitor& v) { v("hidden", hidden); v("out", out); }
//   };
//
// Copying a module aliases its tensors, as copying a tensor does; `clone` copies them. One handle under two names is a tied tensor: counted, stepped
// and stored once. A member that `visit` leaves out is not seen by any of this: hold the names against a list, and look at `missing_grads`.

namespace heed::nn {

class Visitor;

/// Anything with `void visit(nn::Visitor&)`.
template <class M>
concept Module = requires(M& m, Visitor& v) {
  m.visit(v);
};

/// Given to `visit`: called with a name and the member for every member that counts. Names become paths, "blocks.0.attn.weight".
class Visitor {
 public:
  /// A parameter; skipped while undefined (an absent bias).
  void operator()(std::string_view name, Tensor& parameter) { add(name, parameter, false); }
  /// A tensor that belongs to the state but is not trained.
  void buffer(std::string_view name, Tensor& tensor) { add(name, tensor, true); }
  /// Whether the module is in training: what `train` sets. Every flag that is visited is taken for one.
  void operator()(std::string_view name, bool& training) { flags_.emplace_back(prefix_ + std::string(name), &training); }
  /// A layer inside: its names follow "NAME.".
  template <Module M>
  void operator()(std::string_view name, M& child) {
    const Scope inside(prefix_, name);
    child.visit(*this);
  }
  /// Several members, numbered 0, 1, ...
  template <class T>
  void operator()(std::string_view name, std::vector<T>& members) {
    number(name, members);
  }
  /// As above.
  template <class T, std::size_t n>
  void operator()(std::string_view name, std::array<T, n>& members) {
    number(name, members);
  }
  /// A member that may be absent.
  template <class T>
  void operator()(std::string_view name, std::optional<T>& member) {
    if (member) (*this)(name, *member);
  }

  // What was listed, for the functions below.

  /// A parameter or a buffer.
  struct Entry {
    std::string path;  ///< "blocks.0.attn.weight"
    Tensor* tensor;    ///< the member itself
    bool is_buffer;    ///< belongs to the state, is not trained
  };
  const std::vector<Entry>& tensors() const { return tensors_; }                      ///< in the order of the visit
  const std::vector<std::pair<std::string, bool*>>& flags() const { return flags_; }  ///< of training, in the order of the visit

  /// Error when two members of `m` have one name.
  template <Module M>
  static Visitor over(const M& m) {
    Visitor v;
    // The only cast: `visit` hands out members that some of the functions change, and those take the module as not const.
    const_cast<M&>(m).visit(v);
    v.check_names();
    return v;
  }

 private:
  class Scope {
   public:
    Scope(std::string& prefix, std::string_view name) : prefix_(prefix), length_(prefix.size()) { (prefix_ += name) += '.'; }
    ~Scope() { prefix_.resize(length_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::string& prefix_;
    std::size_t length_;
  };

  template <class C>
  void number(std::string_view name, C& members) {
    const Scope inside(prefix_, name);
    std::size_t i = 0;
    for (auto& member : members) (*this)(std::to_string(i++), member);
  }
  void add(std::string_view name, Tensor&, bool is_buffer);
  void check_names() const;

  std::string prefix_;
  std::vector<Entry> tensors_;
  std::vector<std::pair<std::string, bool*>> flags_;
};

/// What `load` and `load_state_dict` left out when they were not strict.
struct LoadReport {
  std::vector<std::string> missing;     ///< of the module, not in what was given
  std::vector<std::string> unexpected;  ///< given, not in the module
};

}  // namespace heed::nn

namespace heed::detail {

// The functions themselves, over what was listed.

NamedTensors named_parameters(const nn::Visitor&);
std::vector<Tensor> parameters(const nn::Visitor&);
std::map<std::string, Tensor> state_dict(const nn::Visitor&);
nn::LoadReport load_state_dict(const nn::Visitor&, const std::map<std::string, Tensor>&, bool strict);
nn::LoadReport load_module(const nn::Visitor&, const std::filesystem::path&, bool strict);
Index num_parameters(const nn::Visitor&);
void convert_module(const nn::Visitor&, DType);
void unshare_tensors(const nn::Visitor&);
std::vector<std::string> missing_grads(const nn::Visitor&);
std::string summary(const nn::Visitor&);

}  // namespace heed::detail

namespace heed::nn {

/// The parameters, in the order of `visit`; a tied one once.
template <Module M>
std::vector<Tensor> parameters(const M& m) {
  return detail::parameters(Visitor::over(m));
}

/// As `parameters`, with their paths; a tied one under the first of its names.
template <Module M>
NamedTensors named_parameters(const M& m) {
  return detail::named_parameters(Visitor::over(m));
}

/// Parameters and buffers under all of their names: aliases without history, so that a later step shows in them (`clone` what is to stay).
/// Names of one tensor are one handle here too.
template <Module M>
std::map<std::string, Tensor> state_dict(const M& m) {
  return detail::state_dict(Visitor::over(m));
}

/// Writes the elements of `state` into the module's tensors, in place; float dtypes are converted to the module's. Of a tied tensor one name is
/// enough; where several are given, each must write the same bits: a NaN goes with a copy of itself, 0 does not go with -0, and copies of f64 that
/// become one f32 do in a module of f32.
///
/// Error with a table of everything that does not fit, before anything is written: names missing or unexpected (only reported when not
/// `strict`), shapes and dtypes that differ.
template <Module M>
LoadReport load_state_dict(M& m, const std::map<std::string, Tensor>& state, bool strict = true) {
  return detail::load_state_dict(Visitor::over(m), state, strict);
}

/// How many numbers are trained or frozen: elements of all parameters, tied ones once, without buffers.
template <Module M>
Index num_parameters(const M& m) {
  return detail::num_parameters(Visitor::over(m));
}

/// Sets the training flags of the module and its children: dropout works in training only.
template <Module M>
void train(M& m, bool training = true) {
  const Visitor visited = Visitor::over(m);
  for (const auto& flag : visited.flags()) *flag.second = training;
}

/// `train(m, false)`: dropout does nothing.
template <Module M>
void eval(M& m) {
  train(m, false);
}

/// Converts floating-point parameters, buffers and their gradients to f32 or f64. Every tensor stays the same tensor with other elements, so that
/// optimizers, ties and hooks stay valid; a graph recorded before can no longer run backward, and says so. Views made before keep the old elements.
/// DTypeError for other dtypes, GradError for a tensor that is not a leaf, before anything is changed.
template <Module M>
void to(M& m, DType dtype) {
  detail::convert_module(Visitor::over(m), dtype);
}

/// A module with tensors of its own: elements, names, flags and ties as in `m`, without gradients and hooks.
template <Module M>
M clone(const M& m) {
  M copy(m);
  detail::unshare_tensors(Visitor::over(copy));
  return copy;
}

/// Makes every `.grad` undefined.
template <Module M>
void zero_grad(M& m) {
  const Visitor visited = Visitor::over(m);
  for (const Visitor::Entry& e : visited.tensors()) e.tensor->zero_grad();
}

/// Parameters that want a gradient and have none: after a backward, those that the loss does not depend on.
template <Module M>
std::vector<std::string> missing_grads(const M& m) {
  return detail::missing_grads(Visitor::over(m));
}

/// Writes `state_dict(m)` to a safetensors file, tied tensors once, with strings of the caller's beside it. IoError as save_safetensors.
template <Module M>
void save(const M& m, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata = {}) {
  save_safetensors(path, state_dict(m), metadata);
}

/// `load_state_dict` from a safetensors file: IoError for a bad file, and with the table for one of another module.
template <Module M>
LoadReport load(M& m, const std::filesystem::path& path, bool strict = true) {
  return detail::load_module(Visitor::over(m), path, strict);
}

/// A table for people: path, shape, dtype, element count and bytes of every tensor; before the tensors of a module that has modules of its own,
/// their sums, and at the end the total. Tied tensors count once; the sums count buffers in bytes, not as parameters.
template <Module M>
std::string summary(const M& m) {
  return detail::summary(Visitor::over(m));
}

}  // namespace heed::nn
