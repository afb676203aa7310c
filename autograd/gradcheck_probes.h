#pragma once

// Private to gradient checks: the derivatives by one input, analytic against numeric.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradcheck.h"
#include "gradcheck_report.h"
#include "numeric_derivative.h"

namespace heed::detail {

/// A place of one input that is looked at: an element, or a direction of the whole, for some of the values.
struct Probe {
  Index element;
  Tensor direction;  ///< undefined for an element
  std::size_t first_value, last_value;
};

/// What is asked about one input.
struct InputProbes {
  std::vector<Probe> probes;
  Values largest;  ///< what analytic derivatives of each value by this input reach, whether probed or not
  std::function<void(const Probe&, Values& analytic)> analytic;  ///< fills in the derivatives of the probe's values
};

/// The value of a probe that is furthest outside the numeric derivative's error, and its judgment.
struct Finding {
  Probe probe;
  double ratio;  ///< gap over tolerance
  std::size_t value;
  double analytic;
  Judgment judgment;

  bool right() const { return judgment.verdict == Verdict::ok; }
};

/// Holds the derivatives by one input against each other.
///
/// First by central differences at two steps. Where they disagree with the analytic ones, by finer and finer steps. Where their error is too large to
/// tell, by wide steps; and where these cannot tell either, and the derivative may be one of the large ones of its value, by differences of single
/// nodes. What is open then is undecided.
class InputJudge {
 public:
  InputJudge(const CheckedFunction& fn, const NamedTensors::value_type& input, const GradcheckOptions& options, InputSummary& summary,
             std::vector<std::string>& notes)
      : fn_(fn), name_(input.first), leaf_(input.second), options_(options), summary_(summary), notes_(notes), typical_(typical_size(leaf_)) {}

  /// One finding for each probe, the worst first.
  std::vector<Finding> judge_all(const InputProbes&, const Evaluate&, const Baseline&);

 private:
  /// A value whose derivative differences of the whole function cannot tell, of a probe where nothing is wrong.
  struct Unseen {
    std::size_t finding, value;
    double analytic, numeric, error;
  };

  Finding judge_one(const Probe&, const Evaluate&, const Baseline&);
  void look_wide(Line&, Finding&, const Evaluate&, const Baseline&, double size);
  bool moves_something(const Evaluate&, const Baseline&) const;
  double slack(const Probe&) const;
  void ask_nodes(std::vector<Finding>&);

  const CheckedFunction& fn_;
  const std::string& name_;
  Tensor leaf_;
  const GradcheckOptions& options_;
  InputSummary& summary_;
  std::vector<std::string>& notes_;
  double typical_;
  Values largest_, analytic_;  // by value; of the probe at hand
  std::vector<std::size_t> blind_;
  std::vector<std::pair<double, std::size_t>> suspects_;  // ratio and value
  std::vector<Unseen> unseen_;
  std::size_t index_ = 0;      // of the probe at hand
  bool also_nothing_ = false;  // whether to look at what seems to be 0 by wide steps
  NumericColumn column_;
};

}  // namespace heed::detail
