#include "replay.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "../tensor/raise.h"

namespace heed::detail {
namespace {

class Tracer final : public RecordObserver {
 public:
  explicit Tracer(std::vector<Step>& steps) : steps_(steps) {}

  void on_record(const OpName& op, std::span<Tensor> outputs, std::span<const Tensor> inputs) override {
    Step step{op.name, op.caller, false, false, {inputs.begin(), inputs.end()}, {}, {}};
    for (const Tensor& t : inputs) step.recorded |= thread_state.grad_enabled && needs_grad(t);
    for (const Tensor& t : outputs) step.outputs.push_back(copy_of(t)), step.output_ids.push_back(t.id());
    steps_.push_back(std::move(step));
  }

 private:
  std::vector<Step>& steps_;
};

/// Hands back the outputs of the traced run, one of them replaced, and keeps what the step in question makes.
class Pinning final : public RecordObserver {
 public:
  Pinning(const std::vector<Step>& steps, std::size_t target, std::uint64_t replaced_id, const Tensor& value)
      : steps_(steps), target_(target), replaced_id_(replaced_id), value_(value) {}

  void on_record(const OpName& op, std::span<Tensor> outputs, std::span<const Tensor> inputs) override {
    if (next_ == steps_.size() || std::string_view(steps_[next_].name) != op.name)
      raise<GradError>("gradcheck: the function took another course when it ran again, at op {} ({})", next_, op.name);
    const Step& step = steps_[next_];
    if (next_ == target_) {
      for (const Tensor& t : outputs) made_.push_back(copy_of(t));
    } else if (step.pinned) {
      for (std::size_t i = 0; i < outputs.size(); ++i) pin(outputs[i], step.output_ids[i] == replaced_id_ ? value_ : step.outputs[i], inputs);
    }
    ++next_;
  }

  std::vector<Tensor> made() { return std::move(made_); }

 private:
  /// In place where the memory is the output's own: a backward may have saved it already.
  static void pin(Tensor& output, const Tensor& value, std::span<const Tensor> inputs) {
    const Unseen off;
    const Storage& storage = *output.ref()->storage;
    if (std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& t) { return t.defined() && t.ref()->storage == output.ref()->storage; })) {
      output = value.clone();
      return;
    }
    const std::uint32_t version = storage.version();
    output.copy_(value);
    output.ref()->storage->restore_version(version);
  }

  const std::vector<Step>& steps_;
  std::size_t target_, next_ = 0;
  std::uint64_t replaced_id_;
  const Tensor& value_;
  std::vector<Tensor> made_;
};

/// A leaf with other elements for a while.
class Lent {
 public:
  Lent(const Tensor& leaf, const Tensor& value) : leaf_(leaf), kept_(leaf.detach().clone()), version_(leaf.ref()->storage->version()) {
    write(value);
  }
  ~Lent() {
    write(kept_);
    leaf_.ref()->storage->restore_version(version_);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  void write(const Tensor& value) {
    const NoGrad off;
    leaf_.copy_(value);
  }
  Tensor leaf_, kept_;
  std::uint32_t version_;
};

}  // namespace

Tensor copy_of(const Tensor& t) {
  RecordObserver* const before = std::exchange(thread_state.observer, nullptr);
  const NoGrad off;
  Tensor copy = t.clone();
  thread_state.observer = before;
  return copy;
}

std::vector<Step> trace(const std::function<std::vector<Tensor>()>& fn, std::vector<Tensor>& results) {
  std::vector<Step> steps;
  Tracer tracer(steps);
  const GradModeScope mode(true);
  const Observing on(tracer);
  results = fn();
  std::unordered_set<std::uint64_t> taken;
  for (const Step& step : steps)
    for (const Tensor& t : step.inputs)
      if (step.recorded && t.defined()) taken.insert(t.id());
  for (const Step& step : steps)  // what the inside of an op made may have become the output of its node
    for (std::uint64_t id : step.output_ids)
      if (step.recorded) taken.erase(id);
  for (Step& step : steps)
    step.pinned = step.recorded || std::any_of(step.output_ids.begin(), step.output_ids.end(), [&](std::uint64_t id) { return taken.count(id) > 0; });
  return steps;
}

std::vector<Tensor> LocalFunction::operator()(const Tensor& value) const {
  // A leaf is written to; what a step made is replaced when that step comes by.
  std::optional<Lent> lent;
  if (input_.is_leaf()) lent.emplace(input_, value);
  Pinning pinning(steps_, step_, origin_, value);
  const GradModeScope mode(true);
  const Observing on(pinning);
  fn_();
  return pinning.made();
}

}  // namespace heed::detail
