#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "../autograd/attention.h"
#include "kv_cache.h"

namespace heed::nn {

/// What check_cache_equivalence found.
struct CacheReport {
  bool ok = false;                               ///< steps and chunks give what the whole sequence gives
  std::string message;                           ///< what was looked at, or the first difference in words
  Index position = -1;                           ///< the first output position that differs
  explicit operator bool() const { return ok; }  ///< `if (check_cache_equivalence(...))`
};

/// From the next pieces of x to their outputs.
using Decoder = std::function<Tensor(const Tensor&)>;

/// Whether a model that is fed piece by piece, with what it caches, gives what it gives for the whole sequence: one-token steps, and random chunks.
///
/// x (B, T, ...): embedded sequences or token ids. `whole(x)` gives (B, T, ...); `start()` gives a fresh decoder, a function from the next pieces of
/// x to their outputs that keeps its caches. Results agree to 1e-10 (f64) or 1e-4 (f32) of the largest output: chunks sum in another order. Runs
/// without recording, in whatever mode the model is; a model that is not deterministic (dropout in training) is reported as such.
/// ShapeError for other shapes.
CacheReport check_cache_equivalence(const Decoder& whole, const std::function<Decoder()>& start, const Tensor& x);

/// For a layer `model(x, mask, KVCache*)` under a causal mask, as MultiHeadAttention.
template <class M>
requires std::is_invocable_v<const M&, const Tensor&, const Mask&, KVCache*> CacheReport check_cache_equivalence(const M& model, const Tensor& x) {
  const auto run = [&model](const Tensor& piece, KVCache* cache) -> Tensor {
    const auto out = model(piece, Mask::causal(), cache);
    if constexpr (std::is_same_v<std::remove_const_t<decltype(out)>, Tensor>)
      return out;
    else
      return out.output;
  };
  return check_cache_equivalence([&](const Tensor& all) { return run(all, nullptr); },
                                 [&]() -> Decoder { return [run, cache = KVCache()](const Tensor& piece) mutable { return run(piece, &cache); }; },
                                 x);
}

/// For a whole model `model(idx, std::vector<KVCache>*)`, as GPT.
template <class M>
requires std::is_invocable_r_v < Tensor, const M&, const Tensor&, std::vector<KVCache>
* > CacheReport check_cache_equivalence(const M& model, const Tensor& idx) {
  return check_cache_equivalence([&model](const Tensor& all) -> Tensor { return model(all); },
                                 [&model]() -> Decoder {
                                   return [&model, caches = std::vector<KVCache>()](const Tensor& piece) mutable -> Tensor {
                                     return model(piece, &caches);
                                   };
                                 },
                                 idx);
}

}  // namespace heed::nn
