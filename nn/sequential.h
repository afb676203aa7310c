#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "../autograd/mask.h"
#include "module.h"

namespace heed::nn {

/// Layers and plain functions one after the other, each with what the one before it returned:
///
///   nn::Sequential mlp(nn::Linear(4, 16), relu, nn::Linear(16, 1));   // "0.weight", "0.bias", "2.weight", "2.bias"
///
/// All are numbered, functions too, as PyTorch numbers its layers.
template <class... Layers>
class Sequential {
 public:
  /// First to last.
  explicit Sequential(Layers... parts) : layers(std::move(parts)...) {}

  /// What the last one returns: a tensor, or an Attention.
  auto operator()(const Tensor& x, Caller caller = Caller::here()) const { return run<0>(x, caller); }

  void visit(Visitor& v) { visit_from<0>(v); }  ///< state: "0.weight" and so on

  std::tuple<Layers...> layers;  ///< `std::get<0>(mlp.layers)`

 private:
  template <std::size_t i, class X>
  auto run(const X& x, Caller caller) const {
    if constexpr (i == sizeof...(Layers)) {
      return x;
    } else {
      const auto& layer = std::get<i>(layers);
      if constexpr (std::invocable<decltype(layer), const X&, Caller>)
        return run<i + 1>(layer(x, caller), caller);
      else if constexpr (std::invocable<decltype(layer), const X&, std::nullptr_t, Caller>)  // no cache, or no caches
        return run<i + 1>(layer(x, nullptr, caller), caller);
      else if constexpr (std::invocable<decltype(layer), const X&, const Mask&, Caller>)
        return run<i + 1>(layer(x, Mask(), caller), caller);
      else if constexpr (std::invocable<decltype(layer), const X&, const Mask&, std::nullptr_t, Caller>)
        return run<i + 1>(layer(x, Mask(), nullptr, caller), caller);
      else
        return run<i + 1>(layer(x), caller);
    }
  }

  template <std::size_t i>
  void visit_from(Visitor& v) {
    if constexpr (i < sizeof...(Layers)) {
      auto& layer = std::get<i>(layers);
      if constexpr (Module<std::remove_reference_t<decltype(layer)>>) v(std::to_string(i), layer);
      visit_from<i + 1>(v);
    }
  }
};

}  // namespace heed::nn
