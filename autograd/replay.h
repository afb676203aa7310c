#pragma once

// Private to gradient checks: runs of a function whose every op is seen, numbered, and may be given other values.

#include <functional>
#include <vector>

#include "named_tensors.h"
#include "op.h"

namespace heed::detail {

/// Puts an observer in place, in front of those there are.
class Observing {
 public:
  explicit Observing(RecordObserver& observer) : before_(std::exchange(thread_state.observer, &observer)) {}
  ~Observing() { thread_state.observer = before_; }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  RecordObserver* before_;
};

/// A copy of the elements that the observers do not see.
Tensor copy_of(const Tensor&);

/// One op of a run, as `record` saw it.
struct Step {
  const char* name;
  Caller caller;
  bool recorded;                ///< got a node: recording was on and an input needed a gradient
  bool pinned;                  ///< a node, or made a constant that a node takes; the rest is the inside of other ops
  std::vector<Tensor> inputs;   ///< with their history
  std::vector<Tensor> outputs;  ///< copies of the elements: views of a leaf would change with it
  std::vector<std::uint64_t> output_ids;
};

/// Runs `fn` and keeps what passed through `record`.
std::vector<Step> trace(const std::function<std::vector<Tensor>()>& fn, std::vector<Tensor>& results);

/// The function that one step of a traced run computes of one of its inputs, all else being as in that run: evaluated by running the whole function
/// again, with the outputs of all other recorded steps put back to what they were.
class LocalFunction {
 public:
  /// `origin` is the id that the input had when its step made it: a value that a backward saved is another handle on the same elements.
  LocalFunction(const std::function<std::vector<Tensor>()>& fn, const std::vector<Step>& steps, std::size_t step, const Tensor& input,
                std::uint64_t origin)
      : fn_(fn), steps_(steps), step_(step), input_(input), origin_(origin) {}

  /// The step's outputs where the input is `value`. GradError when the run takes another course than the traced one.
  std::vector<Tensor> operator()(const Tensor& value) const;

 private:
  const std::function<std::vector<Tensor>()>& fn_;
  const std::vector<Step>& steps_;
  std::size_t step_;
  Tensor input_;
  std::uint64_t origin_;
};

}  // namespace heed::detail
