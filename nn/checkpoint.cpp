#include "checkpoint.h"

#include <charconv>

#include "../tensor/io/safetensors.h"
#include "../tensor/raise.h"

namespace heed {
namespace nn {
namespace {

using detail::raise;

constexpr std::string_view optimizer_prefix = "optimizer.", own_prefix = "heed.";
constexpr const char *version_key = "heed.checkpoint", *step_key = "heed.step", *seed_key = "heed.random.seed", *offset_key = "heed.random.offset";

template <class T>
T number(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) raise<IoError>("load_checkpoint: {}: not a checkpoint: the metadata have no {}", path.string(), key);
  const std::string& text = found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < T{0})
    raise<IoError>("load_checkpoint: {}: {} is not a whole number from 0 on: {}", path.string(), key, text.substr(0, 100));
  return value;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& c) {
  if (c.step < 0) raise<Error>("save_checkpoint: a step below 0: {}", c.step);
  std::map<std::string, Tensor> tensors = c.model;
  for (const auto& [name, t] : c.model)
    if (name.starts_with(optimizer_prefix)) raise<Error>("save_checkpoint: a tensor of the model has a name of the optimizer's: {}", name);
  for (const auto& [name, t] : c.optimizer) tensors[std::string(optimizer_prefix) + name] = t;
  std::map<std::string, std::string> metadata = c.strings;
  for (const auto& [key, text] : c.strings)
    if (key.starts_with(own_prefix)) raise<Error>("save_checkpoint: a string with a key of the checkpoint's own: {}", key);
  metadata[version_key] = "1";
  metadata[step_key] = std::to_string(c.step);
  metadata[seed_key] = std::to_string(c.random.seed);
  metadata[offset_key] = std::to_string(c.random.offset);
  save_safetensors(path, tensors, metadata);
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  auto [tensors, metadata] = detail::load_safetensors_file("load_checkpoint", path);
  if (const auto version = number<int>(path, metadata, version_key); version != 1)
    raise<IoError>("load_checkpoint: {}: a checkpoint of version {}: version 1 is read", path.string(), version);
  Checkpoint out;
  out.step = number<Index>(path, metadata, step_key);
  out.random = {number<std::uint64_t>(path, metadata, seed_key), number<std::uint64_t>(path, metadata, offset_key)};
  std::erase_if(metadata, [](const auto& item) { return item.first.starts_with(own_prefix); });
  out.strings = std::move(metadata);
  for (auto& [name, t] : tensors) {
    if (name.starts_with(optimizer_prefix))
      out.optimizer[name.substr(optimizer_prefix.size())] = t;
    else
      out.model[name] = t;
  }
  return out;
}

}  // namespace nn

void detail::restore(const nn::Checkpoint& from, const nn::Visitor& model, nn::Optimizer& optimizer) {
  const std::map<std::string, Tensor> before = optimizer.state_dict();
  optimizer.load_state_dict(from.optimizer);
  try {
    load_state_dict(model, from.model, true);
  } catch (...) {
    optimizer.load_state_dict(before);
    throw;
  }
  set_rng_state(from.random);
}

}  // namespace heed
