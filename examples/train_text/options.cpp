#include "options.h"

#include <fmt/format.h>

#include <sstream>
#include <stdexcept>

namespace {

/// Calls `f` with the name and each member of a recipe.
template <class R, class F>
void for_each_member(R& r, F f) {
  f("train.tokenizer", r.tokenizer), f("train.vocab_size", r.vocab_size);
  f("train.layers", r.layers), f("train.heads", r.heads), f("train.d_model", r.d_model), f("train.context", r.context), f("train.dropout", r.dropout);
  f("train.steps", r.steps), f("train.batch", r.batch), f("train.accumulate", r.accumulate), f("train.warmup", r.warmup);
  f("train.lr", r.lr), f("train.weight_decay", r.weight_decay), f("train.clip", r.clip), f("train.seed", r.seed);
}

}  // namespace

std::map<std::string, std::string> recipe_strings(const Recipe& recipe) {
  std::map<std::string, std::string> out;
  for_each_member(recipe, [&](const char* key, const auto& value) { out[key] = fmt::format("{}", value); });
  return out;
}

Recipe recipe_from(const std::map<std::string, std::string>& strings) {
  Recipe recipe;
  for_each_member(recipe, [&](const char* key, auto& value) {
    const auto found = strings.find(key);
    if (found == strings.end()) throw std::runtime_error(fmt::format("--resume: not a checkpoint of train_text: there is no {}", key));
    std::istringstream in(found->second);
    if (!(in >> value) || !in.eof()) throw std::runtime_error(fmt::format("--resume: {} makes no sense: {}", key, found->second));
  });
  return recipe;
}
