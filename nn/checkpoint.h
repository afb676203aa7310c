#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "../tensor/random.h"
#include "module.h"
#include "optim.h"

namespace heed::nn {

/// All that a training run needs to go on as if it had not been stopped, bit for bit with the same number of threads.
///
/// One safetensors file: the model's tensors under their own names, so that other programs find them; the optimizer's under "optimizer.NAME.exp_avg"
/// and so on; numbers and strings in the metadata, those of this class under "heed.".
struct Checkpoint {
  std::map<std::string, Tensor> model = {};         ///< as `state_dict(model)`
  std::map<std::string, Tensor> optimizer = {};     ///< as `Optimizer::state_dict()`
  Index step = 0;                                   ///< steps made
  RngState random = {};                             ///< of the process
  std::map<std::string, std::string> strings = {};  ///< the caller's: configuration, tokenizer
};

/// The file appears complete or not at all: at every moment, also when the process is killed, the path names the old checkpoint or the new one,
/// whole. (A killed process may leave a file ".heed-*.tmp" beside it.) Error for a step below 0, for a tensor of the model whose name begins with
/// "optimizer.", and for a string whose key begins with "heed."; IoError as save_safetensors.
void save_checkpoint(const std::filesystem::path&, const Checkpoint&);

/// IoError as load_safetensors, and for a file that is not a checkpoint.
Checkpoint load_checkpoint(const std::filesystem::path&);

/// The state of a run after `step` steps: model, optimizer and random numbers. The tensors of the model are aliases: save before the next step.
template <Module M>
Checkpoint checkpoint_of(const M& m, const Optimizer& optimizer, Index step, std::map<std::string, std::string> strings = {}) {
  return {state_dict(m), optimizer.state_dict(), step, rng_state(), std::move(strings)};
}

}  // namespace heed::nn

namespace heed::detail {
void restore(const nn::Checkpoint&, const nn::Visitor&, nn::Optimizer&);
}

namespace heed::nn {

/// Puts the state back into a model, its optimizer and the generator of random numbers. Error with the table of what does not fit, as
/// `load_state_dict` of each; then nothing has changed.
template <Module M>
void restore(const Checkpoint& from, M& m, Optimizer& optimizer) {
  detail::restore(from, Visitor::over(m), optimizer);
}

}  // namespace heed::nn
