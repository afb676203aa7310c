#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "named_tensors.h"

namespace heed {

struct GradcheckOptions {
  bool allow_f32 = false;       ///< accept f32 inputs, whose differences carry few digits
  std::uint64_t seed = 0;       ///< of the random cotangents
  std::size_t max_entries = 8;  ///< entries of an input that the report lists at most
};

/// One element of a Jacobian: d output[output_index] / d input[index].
struct GradcheckEntry {
  std::string name;  ///< of the input
  Dims index;
  std::size_t output = 0;  ///< which output of the function
  Dims output_index;
  double analytic = 0, numeric = 0;
  double abs_error = 0, rel_error = 0;
  double estimated_error = 0;  ///< of the numeric value: truncation and rounding
  std::string verdict;         ///< "ok", "wrong", "kink" or "nan"
};

struct GradcheckReport {
  bool ok = false;
  std::string message;                  ///< a table for people
  std::vector<GradcheckEntry> entries;  ///< the worst of each input, worst first
  explicit operator bool() const { return ok; }
};

namespace detail {

using CheckedFunction = std::function<std::vector<Tensor>()>;
GradcheckReport run_gradcheck(const CheckedFunction&, const NamedTensors&, const GradcheckOptions&);
GradcheckReport run_gradgradcheck(const CheckedFunction&, const NamedTensors&, const GradcheckOptions&);

inline std::vector<Tensor> as_outputs(Tensor t) { return {std::move(t)}; }
inline std::vector<Tensor> as_outputs(std::vector<Tensor> ts) { return ts; }
/// Fresh leaves with the values of `inputs`, numbered; leaves that require a gradient are taken as they are. GradError for others with history.
NamedTensors numbered_leaves(const std::vector<Tensor>& inputs);
std::vector<Tensor> tensors_of(const NamedTensors&);

template <class R>
concept CheckedResult = std::same_as<R, Tensor> || std::same_as<R, std::vector<Tensor>>;

}  // namespace detail

/// Holds the gradients that backward computes for `fn` against central differences, for every element of every input and output.
///
/// `fn() -> Tensor or std::vector<Tensor>` reads the named leaves, which are moved in place and restored bit for bit; their `.grad` is not touched.
/// Differences are taken at two step sizes, extrapolated, and compared within the error that the two suggest plus rounding, so that no constant
/// decides and scaling inputs or outputs changes no verdict. Refused with an Error: inputs that are not leaves, share memory, are f32 (unless
/// allowed) or not floats. Reported as not ok: wrong elements, kinks (where derivatives from left and right differ), NaN, functions that are not
/// deterministic. Inputs without elements pass.
template <std::invocable F>
requires detail::CheckedResult<std::invoke_result_t<F>> GradcheckReport gradcheck(F&& fn, const NamedTensors& inputs,
                                                                                  const GradcheckOptions& options = {}) {
  return detail::run_gradcheck([&] { return detail::as_outputs(fn()); }, inputs, options);
}
/// As above for a function of its inputs, which may be any tensors without history.
template <std::invocable<const std::vector<Tensor>&> F>
requires detail::CheckedResult < std::invoke_result_t < F, const std::vector<Tensor>
& >> GradcheckReport gradcheck(F&& fn, const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  const NamedTensors named = detail::numbered_leaves(inputs);
  const std::vector<Tensor> leaves = detail::tensors_of(named);
  return detail::run_gradcheck([&] { return detail::as_outputs(fn(leaves)); }, named, options);
}

/// Second derivatives: gradcheck of the gradients that `fn` gets for random cotangents, with respect to the inputs and the cotangents ("cotangent 0",
/// ...).
template <std::invocable F>
requires detail::CheckedResult<std::invoke_result_t<F>> GradcheckReport gradgradcheck(F&& fn, const NamedTensors& inputs,
                                                                                      const GradcheckOptions& options = {}) {
  return detail::run_gradgradcheck([&] { return detail::as_outputs(fn()); }, inputs, options);
}
template <std::invocable<const std::vector<Tensor>&> F>
requires detail::CheckedResult < std::invoke_result_t < F, const std::vector<Tensor>
& >> GradcheckReport gradgradcheck(F&& fn, const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  const NamedTensors named = detail::numbered_leaves(inputs);
  const std::vector<Tensor> leaves = detail::tensors_of(named);
  return detail::run_gradgradcheck([&] { return detail::as_outputs(fn(leaves)); }, named, options);
}

}  // namespace heed
