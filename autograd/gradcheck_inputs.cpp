#include "gradcheck_inputs.h"

#include <algorithm>
#include <limits>

#include "../tensor/factory.h"
#include "../tensor/raise.h"
#include "op.h"
#include "ops.h"

namespace heed::detail {
namespace {

/// Whether two tensors that are not one and the same lie in overlapping stretches of one storage.
bool share_memory(const Tensor& a, const Tensor& b) {
  if (a.id() == b.id() || !(a.ref()->storage == b.ref()->storage) || a.numel() == 0 || b.numel() == 0) return false;
  const auto last = [](const Tensor& t) {
    Index at = t.ref()->layout.offset;
    for (std::size_t d = 0; d < t.shape().size(); ++d) at += (t.shape()[d] - 1) * t.strides()[d];
    return at;
  };
  return a.ref()->layout.offset <= last(b) && b.ref()->layout.offset <= last(a);
}

}  // namespace

void require_checkable(const NamedTensors& inputs, const GradcheckOptions& options) {
  if (!(options.nondet_tol >= 0)) raise<Error>("gradcheck: nondet_tol is negative or no number: {}", options.nondet_tol);
  for (const auto& [name, t] : inputs) {
    if (!t.defined()) raise<Error>("gradcheck: input {} is undefined", name);
    if (!is_float(t.dtype())) raise<DTypeError>("gradcheck: input {} is {}: only f64 (and f32) have derivatives", name, t.dtype());
    if (t.dtype() == f32 && !options.allow_f32)
      raise<DTypeError>("gradcheck: input {} is f32, whose differences have few digits: convert it to f64, or ask with allow_f32", name);
    if (!t.is_leaf())
      raise<GradError>("gradcheck: input {} is not a leaf but the output of {}: check the leaves it was made from, or detach it", name,
                       node_of(t)->name);
    if (overlaps_itself(t.ref()->layout))
      raise<ShapeError>("gradcheck: elements of input {} share memory (shape {}, strides {}), so that moving one moves others: make it contiguous",
                        name, t.shape(), t.strides());
    for (const auto& [other_name, other] : inputs) {
      if (&other == &t) break;
      if (share_memory(t, other))
        raise<ShapeError>("gradcheck: inputs {} and {} share memory, so that moving one moves the other: clone one of them", other_name, name);
    }
  }
}

RequireGrads::RequireGrads(const NamedTensors& inputs) {
  for (const auto& [name, t] : inputs)
    if (!t.requires_grad()) (turned_on_.emplace_back(t)).requires_grad_();
}

RequireGrads::~RequireGrads() {
  for (Tensor& t : turned_on_) t.requires_grad_(false);
}

double epsilon_of(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
}

Dims unravel(Index element, const Dims& shape) {
  Dims index = shape;
  for (std::size_t d = shape.size(); d-- > 0; element /= shape[d]) index[d] = element % shape[d];
  return index;
}

void append(Values& all, const Tensor& t) {
  const Tensor flat = contiguous_data(t);
  const std::size_t at = all.size();
  all.resize(at + static_cast<std::size_t>(flat.numel()));
  dispatch_float(t.dtype(), [&]<class T>() { std::copy_n(flat.data<T>(), flat.numel(), all.begin() + static_cast<std::ptrdiff_t>(at)); });
}

Tensor normal_like(const Tensor& t, std::mt19937_64& random) {
  std::vector<double> values(static_cast<std::size_t>(t.numel()));
  for (double& v : values) v = std::normal_distribution<>()(random);
  return from_vector(values, t.shape()).to(t.dtype());
}

NamedTensors numbered(const std::vector<Tensor>& inputs) {
  NamedTensors named;
  for (const Tensor& t : inputs) named.emplace_back(t.defined() && !t.name().empty() ? t.name() : fmt::format("{}", named.size()), t);
  return named;
}

}  // namespace heed::detail
