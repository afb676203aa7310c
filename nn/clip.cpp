#include <cmath>
#include <limits>
#include <set>

#include "../tensor/kernels/parallel.h"
#include "../tensor/raise.h"
#include "optim.h"
#include "row_major.h"

namespace heed::nn {
namespace {

constexpr Index block = 4096, lanes = 8;

/// Sum of (factor x)^2. Blocks of fixed length, whatever the threads: the same bits for every number of them.
template <class T>
double sum_of_squares(const T* x, Index n, double factor) {
  const auto of_block = [=](Index from) {
    double sums[lanes] = {};
    const Index end = std::min(from + block, n), whole = from + (end - from) / lanes * lanes;
    for (Index i = from; i < whole; i += lanes)
      for (Index j = 0; j < lanes; ++j) {
        const double v = factor * static_cast<double>(x[i + j]);
        sums[j] += v * v;
      }
    double sum = 0;
    for (double s : sums) sum += s;
    for (Index i = whole; i < end; ++i) {
      const double v = factor * static_cast<double>(x[i]);
      sum += v * v;
    }
    return sum;
  };
  std::vector<double> sums(static_cast<std::size_t>((n + block - 1) / block));
  double* const out = sums.data();
  kernels::parallel_for(static_cast<Index>(sums.size()), 16, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) out[i] = of_block(i * block);
  });
  double sum = 0;
  for (double s : sums) sum += s;
  return sum;
}

double sum_of_squares(const std::vector<Tensor>& grads, double factor) {
  double sum = 0;
  for (const Tensor& g : grads)
    sum += detail::dispatch_float(g.dtype(), [&]<class T>() { return sum_of_squares(detail::contiguous_data(g).data<T>(), g.numel(), factor); });
  return sum;
}

double largest_magnitude(const std::vector<Tensor>& grads) {
  double largest = 0;
  for (const Tensor& g : grads)
    detail::dispatch_float(g.dtype(), [&]<class T>() {
      const Tensor flat = detail::contiguous_data(g);
      for (Index i = 0; i < g.numel(); ++i) largest = std::max(largest, static_cast<double>(std::abs(flat.data<T>()[i])));
    });
  return largest;
}

double norm_of(const std::vector<Tensor>& grads) {
  const double sum = sum_of_squares(grads, 1);
  // Far from both ends of the range nothing was lost; NaN stays NaN.
  if (std::isnan(sum) || (sum > 1e-280 && sum < std::numeric_limits<double>::max())) return std::sqrt(sum);
  const double largest = largest_magnitude(grads);
  if (largest == 0 || !std::isfinite(largest)) return largest;
  // In two steps, since the inverse of the smallest numbers overflows; powers of two, so that nothing is rounded.
  const int exponent = std::ilogb(largest);
  return std::ldexp(std::sqrt(sum_of_squares(grads, std::ldexp(1.0, -std::max(exponent, -1000)))), std::max(exponent, -1000));
}

template <class T>
void scale(T* x, Index n, double factor) {
  // A factor below the normal numbers has few digits: the last of it goes first, exactly.
  const T first = factor < static_cast<double>(std::numeric_limits<T>::min()) ? T(0x1p-64) : T{1};
  const T rest = static_cast<T>(factor / static_cast<double>(first));
  kernels::parallel_for(n, 65536, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) x[i] = static_cast<T>(x[i] * first * rest);
  });
}

}  // namespace

double clip_grad_norm(const ParameterList& params, double max_norm) {
  if (!(max_norm >= 0)) detail::raise<Error>("clip_grad_norm: max_norm is negative or not a number: {}", max_norm);
  std::vector<Tensor> grads;
  std::set<const detail::TensorImpl*> seen;
  for (const auto& [name, p] : params.items())
    if (p.defined() && seen.insert(p.ref().get()).second && p.grad().defined()) grads.push_back(p.grad());
  const double norm = norm_of(grads);
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || !(factor < 1)) return norm;
  for (const Tensor& g : grads)
    detail::change_row_major(
        g, [&](Tensor& t) { detail::dispatch_float(t.dtype(), [&]<class T>() { scale(t.mutable_data<T>(), t.numel(), factor); }); });
  return norm;
}

}  // namespace heed::nn
