#include "dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "../../tensor/factory.h"
#include "../../tensor/raise.h"
#include "../../tensor/random.h"
#include "tokenizer.h"

namespace heed::nn {

using detail::raise;

namespace {

Index checked_train_size(std::size_t tokens, double held_out) {
  if (!(held_out >= 0 && held_out < 1)) raise<Error>("TokenDataset: held_out is not in [0, 1): {}", held_out);
  return static_cast<Index>(tokens) - static_cast<Index>(std::floor(static_cast<double>(tokens) * held_out));
}

/// Targets that a window of the held-out part adds to those of the one before.
Index fresh(Index T) { return std::max<Index>(T / 2, 1); }

void check_sizes(Index B, Index T) {
  if (B < 1 || T < 1) raise<Error>("TokenDataset: a batch of no tokens: B={}, T={}", B, T);
}

}  // namespace

TokenDataset::TokenDataset(std::vector<Index> tokens, Index train_size, std::uint64_t seed)
    : tokens_(std::move(tokens)), train_size_(train_size), seed_(seed) {
  if (train_size_ == 0) raise<Error>("TokenDataset: no tokens to learn from");
}

TokenDataset::TokenDataset(std::vector<Index> tokens, const TokenDatasetOptions& options)
    : tokens_(std::move(tokens)), train_size_(checked_train_size(tokens_.size(), options.held_out)), seed_(options.seed) {
  if (train_size_ == 0) raise<Error>("TokenDataset: no tokens to learn from");
}

TokenDataset TokenDataset::from_parts(std::vector<Index> train, const std::vector<Index>& held_out, std::uint64_t seed) {
  const auto train_size = static_cast<Index>(train.size());
  train.insert(train.end(), held_out.begin(), held_out.end());
  return TokenDataset(std::move(train), train_size, seed);
}

TokenBatch TokenDataset::windows_at(const std::vector<Index>& starts, Index T) const {
  std::vector<Index> x, y;
  for (Index start : starts) {
    const auto begin = tokens_.begin() + start;
    x.insert(x.end(), begin, begin + T);
    y.insert(y.end(), begin + 1, begin + T + 1);
  }
  const Dims shape{static_cast<Index>(starts.size()), T};
  return {from_vector(x, shape), from_vector(y, shape)};
}

TokenBatch TokenDataset::batch(Index step, Index B, Index T) const {
  check_sizes(B, T);
  if (step < 0) raise<Error>("TokenDataset: a step below 0: {}", step);
  const Index places = train_size_ - T;  // where a window and its last target fit
  if (places < 1) raise<Error>("TokenDataset: a window of T={} and its last target do not fit into {} tokens to learn from", T, train_size_);
  std::vector<Index> starts;
  for (Index b = 0; b < B; ++b) {
    const double u = detail::uniform_at(seed_, static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(B) + static_cast<std::uint64_t>(b));
    starts.push_back(std::min(static_cast<Index>(u * static_cast<double>(places)), places - 1));
  }
  return windows_at(starts, T);
}

Index TokenDataset::held_out_windows(Index T) const {
  check_sizes(1, T);
  return (held_out_size() + fresh(T) - 1) / fresh(T);
}

TokenBatch TokenDataset::held_out(const std::vector<Index>& windows, Index T) const {
  check_sizes(static_cast<Index>(windows.size()), T);
  const Index hop = fresh(T), count = held_out_windows(T);
  // The targets of the first window end `hop` behind the cut, and its inputs begin one before its targets.
  if (train_size_ < T - hop + 1 || size() < T + 1)
    raise<Error>("TokenDataset: a window of T={} and its last target do not fit: {} tokens to learn from, {} in all", T, train_size_, size());
  std::vector<Index> starts, first_targets;
  for (Index w : windows) {
    if (w < 0 || w >= count) raise<IndexError>("TokenDataset: there is no held-out window {}: {} windows", w, count);
    const Index end = std::min(train_size_ + (w + 1) * hop, size());  // behind the last target
    starts.push_back(end - T - 1);
    first_targets.push_back(train_size_ + w * hop - (end - T));
  }
  TokenBatch out = windows_at(starts, T);
  Index* y = out.y.mutable_data<Index>();
  for (std::size_t i = 0; i < starts.size(); ++i) std::fill_n(y + static_cast<Index>(i) * T, first_targets[i], ignored);
  return out;
}

double unigram_bits(const TokenDataset& data, Index vocabulary) {
  if (data.held_out_size() == 0) return std::numeric_limits<double>::quiet_NaN();
  std::unordered_map<Index, double> count;
  double bits = 0;
  for (Index i = 0; i < data.size(); ++i) {
    const Index id = data.tokens()[static_cast<std::size_t>(i)];
    detail::check_token("unigram_bits", id, vocabulary);
    if (i < data.train_size())
      ++count[id];
    else
      bits -= std::log2((count.contains(id) ? count[id] + 1 : 1) / static_cast<double>(data.train_size() + vocabulary));
  }
  return bits / static_cast<double>(data.held_out_size());
}

double bigram_bits(const TokenDataset& data, Index vocabulary) {
  if (data.held_out_size() == 0) return std::numeric_limits<double>::quiet_NaN();
  std::unordered_map<Index, double> total;
  std::unordered_map<std::uint64_t, double> count;  // pairs that came: a table of all would not fit for words
  const auto get = [](const auto& map, auto key) {
    const auto found = map.find(key);
    return found == map.end() ? 0.0 : found->second;
  };
  double bits = 0;
  for (Index i = 0; i < data.size(); ++i) {
    const Index id = data.tokens()[static_cast<std::size_t>(i)];
    detail::check_token("bigram_bits", id, vocabulary);
    if (i == 0) continue;
    const Index before = data.tokens()[static_cast<std::size_t>(i - 1)];
    const std::uint64_t pair = static_cast<std::uint64_t>(before) * static_cast<std::uint64_t>(vocabulary) + static_cast<std::uint64_t>(id);
    if (i < data.train_size())
      ++count[pair], ++total[before];
    else
      bits -= std::log2((get(count, pair) + 1) / (get(total, before) + static_cast<double>(vocabulary)));
  }
  return bits / static_cast<double>(data.held_out_size());
}

}  // namespace heed::nn
