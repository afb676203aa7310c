#pragma once

#include <heed/heed.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>

struct Options {
  // Absent values take the default of the task, recall or text.
  std::optional<heed::Index> steps, batch, length, d_model, d_head;
  std::optional<double> lr;
  heed::Index keys = 16, values = 16;
  std::string optimizer = "adamw", text, save, load, csv, pictures;
  std::uint64_t seed = 1;
  int threads = 0;  // 0: as many as there are cores
  bool quiet = false;
};

using Optimizer = std::variant<heed::nn::SGD, heed::nn::Adam, heed::nn::AdamW>;

inline Optimizer make_optimizer(const std::string& name, const heed::NamedTensors& params, double lr) {
  if (name == "sgd") return heed::nn::SGD(params, {.lr = lr, .momentum = 0.9});
  if (name == "adam") return heed::nn::Adam(params, {.lr = lr});
  return heed::nn::AdamW(params, {.lr = lr, .weight_decay = 0.01});
}

/// Adds up what a step of training is made of: gradients, clipping, update.
inline void train_step(Optimizer& optimizer, const std::vector<heed::Tensor>& params, const heed::Tensor& loss) {
  std::visit([](auto& o) { o.zero_grad(); }, optimizer);
  loss.backward();
  heed::nn::clip_grad_norm(params, 1.0);
  std::visit([](auto& o) { o.step(); }, optimizer);
}
