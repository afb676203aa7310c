#pragma once

#include <memory>

#include "row.h"

namespace heed::bench {

/// The least that one run of a row must do. The limit of its time is max(flops / FMA rate + exps / exp rate, bytes / copy rate).
struct Cost {
  double flops = 0;  ///< exact: pairs that the mask allows only; backward of attention computes the scores again
  double exps = 0;   ///< of softmax, again in the backward of attention
  double bytes = 0;  ///< read and written, where memory is what a row waits for
};

/// What a row times. Inputs are random and fresh in every process; results are kept, so that nothing is done in vain and tests can look at them.
class Work {
 public:
  explicit Work(Row r) : row(std::move(r)) {}
  virtual ~Work() = default;

  virtual void run() = 0;
  /// The part of a run that makes the result which its backward, if it has one, starts from.
  virtual Tensor forward() = 0;
  virtual NamedTensors inputs() const = 0;
  /// Of the last run.
  virtual NamedTensors results() const = 0;

  /// The bytes that a run cannot do without: inputs and parameters, gradients, the optimizer's state, the result, and what is saved for backward.
  std::int64_t kept_bytes();

  const Row row;
  Cost cost;
  Index states = 0;  ///< tensors that the optimizer keeps for each parameter
  Index items = 1;   ///< what a row's time is divided by: ops of a chain, steps
};

/// Makes the inputs, and runs nothing.
std::unique_ptr<Work> make_work(const Row&);

std::unique_ptr<Work> make_attention(const Row&);
std::unique_ptr<Work> make_gpt(const Row&);

/// The pairs of query and key that an sdpa row's mask allows, over the whole batch. `keep` counts all: no kernel can know them before.
double allowed_pairs(const Row&);

}  // namespace heed::bench
