#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "named_tensors.h"

namespace heed {

/// How much of the Jacobian is looked at.
class GradcheckMode {
 public:
  /// `full` where its predicted time is short, else `directional` with a sample; the report says which, and the prediction.
  static GradcheckMode automatic() { return {}; }
  /// Every element of every input by every element of every output.
  static GradcheckMode full() { return GradcheckMode(Kind::full, 0); }
  /// k times for each input: the derivative along a random direction of the input, for a random cotangent of the outputs. A wrong element shows
  /// unless it is far below the typical one; where a direction fails, elements are sampled to find it.
  static GradcheckMode directional(Index k = 4) { return GradcheckMode(Kind::directional, k); }
  /// n random elements of each input, for two random cotangents of the outputs. The report says how many elements were not looked at.
  static GradcheckMode sampled(Index n = 64) { return GradcheckMode(Kind::sampled, n); }

  /// Which of the four above.
  enum class Kind {
    automatic,    ///< by predicted time
    full,         ///< the whole Jacobian
    directional,  ///< random directions
    sampled       ///< random elements
  };
  Kind kind() const { return kind_; }     ///< as made, automatic not yet decided
  Index count() const { return count_; }  ///< of directions or elements for each input
  GradcheckMode() = default;              ///< automatic

 private:
  GradcheckMode(Kind kind, Index count) : kind_(kind), count_(count) {}
  Kind kind_ = Kind::automatic;
  Index count_ = 0;
};

/// How a gradient is checked.
struct GradcheckOptions {
  GradcheckMode mode = {};       ///< how much of the Jacobian
  bool allow_f32 = false;        ///< accept f32 inputs, whose differences carry few digits
  std::uint64_t seed = 0;        ///< of cotangents, directions and samples
  std::size_t max_entries = 8;   ///< entries of an input that the report lists at most
  bool locate = true;            ///< after a failure, check each node of the graph by itself and name the wrong one
  double nondet_tol = 0;         ///< by how much two runs, forward or backward, may differ; so much a gradient may then be off, too
  bool allow_undecided = false;  ///< whether a report is ok where the differences cannot tell
};

/// One derivative: d output / d input[index], the output being one element (mode full) or the outputs' sum with a random cotangent.
struct GradcheckEntry {
  std::string name;            ///< of the input
  Dims index;                  ///< in the input; empty for a direction
  std::string output;          ///< which element of the outputs, or "cotangent 0"
  double analytic = 0;         ///< what backward gave
  double numeric = 0;          ///< what differences gave
  double abs_error = 0;        ///< |analytic - numeric|
  double rel_error = 0;        ///< of the larger of the two
  double estimated_error = 0;  ///< of the numeric value: truncation and rounding
  std::string verdict;         ///< "ok", "wrong", "kink" (derivatives from left and right differ), "nan" or "undecided" (see gradcheck)
};

/// What a check found.
struct GradcheckReport {
  bool ok = false;                               ///< no entry is wrong, a kink, NaN or (unless allowed) undecided, and the function is deterministic
  std::string message;                           ///< for people: a table, what was not checked, and where the bug is
  std::vector<GradcheckEntry> entries;           ///< all that are not ok, up to max_entries for each input, then the worst right one of each
  std::string verdict = "ok";                    ///< the worst of any entry, or "nondeterministic", which says nothing of the formula
  explicit operator bool() const { return ok; }  ///< `if (gradcheck(...))`
  /// The same for programs: {"ok", "verdict", "message", "entries": [{"name", "index", "output", "analytic", "numeric", "abs_error", "rel_error",
  /// "estimated_error", "verdict"}]}.
  std::string to_json() const;
};

namespace detail {

using CheckedFunction = std::function<std::vector<Tensor>()>;
GradcheckReport run_gradcheck(const CheckedFunction&, const NamedTensors&, const GradcheckOptions&);
GradcheckReport run_gradgradcheck(const CheckedFunction&, const NamedTensors&, const GradcheckOptions&);

inline std::vector<Tensor> as_outputs(Tensor t) { return {std::move(t)}; }
inline std::vector<Tensor> as_outputs(std::vector<Tensor> ts) { return ts; }
/// With the names given by `named`, or numbers.
NamedTensors numbered(const std::vector<Tensor>& inputs);

template <class R>
concept Outputs = std::same_as<R, Tensor> || std::same_as<R, std::vector<Tensor>>;
template <class F>
concept Thunk = std::invocable<F> && Outputs<std::invoke_result_t<F>>;
template <class F>
concept FunctionOfTensors = std::invocable < F,
        const std::vector<Tensor>
& > &&Outputs<std::invoke_result_t<F, const std::vector<Tensor>&>>;

}  // namespace detail

/// Holds the gradients that backward computes for `fn` against central differences.
///
/// `fn() -> Tensor or std::vector<Tensor>` reads the named leaves, which are moved in place and restored bit for bit, also after an exception; their
/// `.grad` is not touched. Differences are taken at two step sizes, extrapolated, and compared within the error that the two suggest plus rounding,
/// so that no constant decides and scaling inputs or outputs changes no verdict; where they disagree, finer steps tell a large third derivative from
/// a kink and a bug, until they stay on one side of a kink nearby and inside of the function's domain.
///
/// Undecided is what differences cannot tell: an estimated error above a tenth of the derivative, as that of sum(x^3) + 1e12, whose last digit is
/// worth more than any step. Before it is said, wide steps are tried, extrapolated to all orders; then, unless the element is of no account beside
/// the largest derivative of that output by that input, single nodes of the graph, where nothing drowns the other. One wrong node makes the verdict
/// wrong, and if all are right it is ok, with a note. A derivative of 0 passes so, too.
///
/// Nondeterministic is a function or a backward whose results differ by more than `nondet_tol` when it runs again (also backward twice in one graph,
/// and once more before anything is called wrong): the message names the op that differs first, and the report has no entries.
///
/// Refused with an Error: inputs that are not leaves, share memory, are f32 (unless allowed) or not floats; a negative `nondet_tol`. Reported as not
/// ok: wrong elements, kinks, NaN, undecided ones unless allowed, nondeterminism. Inputs without elements pass.
template <detail::Thunk F>
GradcheckReport gradcheck(F&& fn, const NamedTensors& inputs, const GradcheckOptions& options = {}) {
  return detail::run_gradcheck([&] { return detail::as_outputs(fn()); }, inputs, options);
}
/// As above for a function of its inputs, which are named 0, 1, ... or by `named`.
template <detail::FunctionOfTensors F>
GradcheckReport gradcheck(F&& fn, const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  return detail::run_gradcheck([&] { return detail::as_outputs(fn(inputs)); }, detail::numbered(inputs), options);
}

/// Second derivatives: gradcheck of the gradients that `fn` gets for random cotangents, with respect to the inputs and the cotangents ("cotangent 0",
/// ...).
template <detail::Thunk F>
GradcheckReport gradgradcheck(F&& fn, const NamedTensors& inputs, const GradcheckOptions& options = {}) {
  return detail::run_gradgradcheck([&] { return detail::as_outputs(fn()); }, inputs, options);
}
/// As above for a function of its inputs.
template <detail::FunctionOfTensors F>
GradcheckReport gradgradcheck(F&& fn, const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  return detail::run_gradgradcheck([&] { return detail::as_outputs(fn(inputs)); }, detail::numbered(inputs), options);
}

}  // namespace heed
