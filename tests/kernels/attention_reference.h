#pragma once

// Attention as its definition says, in double, and problems to put to it and to the kernels.

#include <heed/tensor/kernels/attention.h>
#include <heed/tensor/random.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace heed::kernels::test {

template <class T>
struct Matrices {
  std::vector<T> values;
  std::vector<Index> offsets;
  Index row_stride = 0;

  Batched<const T> view() const { return {values.data(), offsets, row_stride}; }
  T at(Index p, Index i, Index c) const { return values[static_cast<std::size_t>(offsets[static_cast<std::size_t>(p)] + i * row_stride + c)]; }
};

template <class T>
struct Problem {
  AttentionSizes sizes;
  Matrices<T> q, k, v, dout;
  T scale;
  AttentionMask<T> mask;
  AttentionDropout dropout;
  std::vector<Index> lengths, mask_offsets;
  std::vector<char> keep;
  std::vector<T> bias, slopes;
  std::mt19937 random;

  Problem(const AttentionSizes& s, unsigned seed) : sizes(s), random(seed) {
    q = matrices(s.Tq, s.d_k), k = matrices(s.Tk, s.d_k), v = matrices(s.Tk, s.d_v), dout = matrices(s.Tq, s.d_v);
    scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.d_k)));
    for (Index p = 0; p < s.batch; ++p) mask_offsets.push_back(p * s.Tq * s.Tk);
  }
  Problem(const Problem&) = delete;

  T normal() { return static_cast<T>(std::normal_distribution<double>()(random)); }
  Matrices<T> matrices(Index rows, Index size) {
    Matrices<T> m;
    m.row_stride = size;
    for (Index p = 0; p < sizes.batch; ++p) m.offsets.push_back(p * rows * size);
    m.values.resize(static_cast<std::size_t>(sizes.batch * rows * size));
    for (T& x : m.values) x = normal();
    return m;
  }
  /// The same numbers with `stride` elements from row to row.
  void restride(Index stride) {
    const auto spread = [&](Matrices<T>& m, Index rows, Index size) {
      std::vector<T> apart(static_cast<std::size_t>(sizes.batch * rows * stride), std::numeric_limits<T>::quiet_NaN());
      for (Index p = 0; p < sizes.batch; ++p)
        for (Index i = 0; i < rows; ++i)
          for (Index c = 0; c < size; ++c) apart[static_cast<std::size_t>((p * rows + i) * stride + c)] = m.at(p, i, c);
      for (Index p = 0; p < sizes.batch; ++p) m.offsets[static_cast<std::size_t>(p)] = p * rows * stride;
      m.values = apart, m.row_stride = stride;
    };
    spread(q, sizes.Tq, sizes.d_k), spread(k, sizes.Tk, sizes.d_k), spread(v, sizes.Tk, sizes.d_v), spread(dout, sizes.Tq, sizes.d_v);
  }
  void add_lengths() {
    for (Index p = 0; p < sizes.batch; ++p) lengths.push_back(p * sizes.Tk / 2);
    mask.lengths = lengths;
  }
  void add_slopes() {
    for (Index p = 0; p < sizes.batch; ++p) slopes.push_back(static_cast<T>(-0.3 / static_cast<double>(p + 1)));
    mask.slopes = slopes;
  }
  void add_keep(Index row_stride, Index column_stride) {
    keep.resize(static_cast<std::size_t>(sizes.batch * sizes.Tq * sizes.Tk));
    for (char& x : keep) x = random() % 4 != 0;
    mask.keep = {reinterpret_cast<const bool*>(keep.data()), mask_offsets, row_stride};
    mask.keep_column_stride = column_stride;
  }
  void add_bias(Index row_stride, Index column_stride) {
    bias.resize(static_cast<std::size_t>(sizes.batch * sizes.Tq * sizes.Tk));
    for (T& x : bias) x = random() % 8 == 0 ? -std::numeric_limits<T>::infinity() : normal();
    mask.bias = {bias.data(), mask_offsets, row_stride};
    mask.bias_column_stride = column_stride;
  }

  /// What the mask adds to score (p, i, j).
  double added(Index p, Index i, Index j) const {
    constexpr double forbidden = -std::numeric_limits<double>::infinity();
    const Index distance = i + mask.offset - j, origin = mask_offsets[static_cast<std::size_t>(p)];
    if (mask.causal && distance < 0) return forbidden;
    if (mask.window > 0 && std::abs(distance) >= mask.window) return forbidden;
    if (!lengths.empty() && j >= lengths[static_cast<std::size_t>(p)]) return forbidden;
    if (!keep.empty() && !keep[static_cast<std::size_t>(origin + i * mask.keep.row_stride + j * mask.keep_column_stride)]) return forbidden;
    double sum = 0;
    if (!bias.empty()) sum += static_cast<double>(bias[static_cast<std::size_t>(origin + i * mask.bias.row_stride + j * mask.bias_column_stride)]);
    if (!slopes.empty()) sum += static_cast<double>(slopes[static_cast<std::size_t>(p)]) * static_cast<double>(std::abs(distance));
    return sum;
  }
};

template <class T>
struct Results {
  std::vector<T> out, max, sum, weights, dq, dk, dv, dbias;
  std::vector<T> out_alone;  // of a forward that keeps no rows
};

/// `wanted` gradients: 1 dq, 2 dk, 4 dv, 8 dbias.
template <class R, class T>
Results<R> results_for(const Problem<T>& x, unsigned wanted) {
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  const auto filled = [](Index n, bool on = true) { return std::vector<R>(on ? static_cast<std::size_t>(n) : 0, R{77}); };
  return {filled(batch * Tq * d_v),
          filled(batch * Tq),
          filled(batch * Tq),
          filled(batch * Tq * Tk, wanted & 8),
          filled(batch * Tq * d_k, wanted & 1),
          filled(batch * Tk * d_k, wanted & 2),
          filled(batch * Tk * d_v, wanted & 4),
          filled(batch * Tq * Tk, wanted & 8),
          filled(batch * Tq * d_v)};
}
template <class T>
Results<T> make_results(const Problem<T>& x, unsigned wanted) {
  return results_for<T>(x, wanted);
}

template <class T>
void run_into(const Problem<T>& x, Results<T>& r) {
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  const auto begins = [count = batch](Index size) {
    std::vector<Index> at;
    for (Index p = 0; p < count; ++p) at.push_back(p * size);
    return at;
  };
  const std::vector<Index> out_at = begins(Tq * d_v), dq_at = begins(Tq * d_k), dk_at = begins(Tk * d_k), dv_at = begins(Tk * d_v);
  attention<T>(x.sizes, x.q.view(), x.k.view(), x.v.view(), x.scale, x.mask, x.dropout, {r.out.data(), out_at, d_v}, {r.max.data(), r.sum.data()});
  attention<T>(x.sizes, x.q.view(), x.k.view(), x.v.view(), x.scale, x.mask, x.dropout, {r.out_alone.data(), out_at, d_v}, {nullptr, nullptr});
  const SoftmaxRows<const T> rows{r.max.data(), r.sum.data()};
  if (!r.weights.empty()) attention_weights<T>(x.sizes, x.q.view(), x.k.view(), x.scale, x.mask, rows, r.weights.data());
  const auto to = [](std::vector<T>& g) { return g.empty() ? nullptr : g.data(); };
  attention_backward<T>(x.sizes, x.q.view(), x.k.view(), x.v.view(), x.scale, x.mask, x.dropout, {r.out.data(), out_at, d_v}, rows, x.dout.view(),
                        {{to(r.dq), dq_at, d_k}, {to(r.dk), dk_at, d_k}, {to(r.dv), dv_at, d_v}, to(r.dbias)});
}
/// The kernels, all of them.
template <class T>
Results<T> run(const Problem<T>& x, unsigned wanted = 15) {
  Results<T> r = make_results(x, wanted);
  run_into(x, r);
  return r;
}

/// The definition. Gradients of shared matrices stay apart, as the kernel's do.
template <class T>
Results<double> reference(const Problem<T>& x) {
  const auto& [batch, Tq, Tk, d_k, d_v] = x.sizes;
  Results<double> r = results_for<double>(x, 15);
  for (std::vector<double>* g : {&r.out, &r.dq, &r.dk, &r.dv}) std::fill(g->begin(), g->end(), 0.0);
  const double scale = static_cast<double>(x.scale);
  const auto element = [](std::vector<double>& values, Index i) -> double& { return values[static_cast<std::size_t>(i)]; };
  std::vector<double> s(static_cast<std::size_t>(Tk)), dropped(s), dweight(s);
  for (Index p = 0; p < batch; ++p)
    for (Index i = 0; i < Tq; ++i) {
      const Index row = p * Tq + i;
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Index j = 0; j < Tk; ++j) {
        double score = 0;
        for (Index c = 0; c < d_k; ++c) score += static_cast<double>(x.q.at(p, i, c)) * static_cast<double>(x.k.at(p, j, c));
        element(s, j) = score * scale + x.added(p, i, j);
        max = std::max(max, element(s, j));
      }
      for (Index j = 0; j < Tk; ++j) sum += std::isinf(max) ? 0 : std::exp(element(s, j) - max);
      element(r.max, row) = max, element(r.sum, row) = sum;
      double dot = 0;
      for (Index j = 0; j < Tk; ++j) {
        const double weight = sum == 0 ? 0 : std::exp(element(s, j) - max) / sum;
        element(r.weights, row * Tk + j) = weight;
        double factor = 1;
        if (x.dropout.p > 0) {
          const bool kept = detail::uniform_at(x.dropout.seed, x.dropout.offset + static_cast<std::uint64_t>(row * Tk + j)) >= x.dropout.p;
          factor = kept ? 1 / (1 - x.dropout.p) : 0;
        }
        element(dropped, j) = weight * factor;
        double product = 0;
        for (Index c = 0; c < d_v; ++c) {
          const double value = static_cast<double>(x.v.at(p, j, c)), up = static_cast<double>(x.dout.at(p, i, c));
          element(r.out, row * d_v + c) += weight * factor * value;
          element(r.dv, (p * Tk + j) * d_v + c) += weight * factor * up;
          product += value * up;
        }
        element(dweight, j) = product * factor;
        dot += weight * element(dweight, j);
      }
      for (Index j = 0; j < Tk; ++j) {
        const double ds = element(r.weights, row * Tk + j) * (element(dweight, j) - dot);
        element(r.dbias, row * Tk + j) = ds;
        for (Index c = 0; c < d_k; ++c) {
          element(r.dq, row * d_k + c) += scale * ds * static_cast<double>(x.k.at(p, j, c));
          element(r.dk, (p * Tk + j) * d_k + c) += scale * ds * static_cast<double>(x.q.at(p, i, c));
        }
      }
    }
  return r;
}

}  // namespace heed::kernels::test
