#include "attention_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "../autograd/grad_mode.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed::nn {
namespace {

constexpr const char* name = "attention_report";
constexpr double saturated_below = 0.2;

/// Where the mask allows a key, row-major in the shape of the weights.
std::vector<bool> allowed_keys(const Mask& mask, const Tensor& weights) {
  const detail::DenseMask dense = detail::dense_mask(name, mask, weights.shape(), mask.biases().empty() ? f64 : mask.biases()[0].dtype());
  Tensor allowed = dense.allowed.defined() ? dense.allowed : full({}, 1, boolean);
  if (dense.added.defined()) allowed = allowed & gt(dense.added.detach(), -HUGE_VAL);
  return expand(allowed, weights.shape()).to_vector<bool>();
}

std::string table(const std::vector<AttentionReport::Head>& heads) {
  std::string text = "head  entropy  largest  p(1-p)    passed\n";
  auto out = std::back_inserter(text);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const AttentionReport::Head& head = heads[h];
    fmt::format_to(out, "{:4}  ", h);
    if (head.rows == 0)
      fmt::format_to(out, "no row has two keys to choose from\n");
    else
      fmt::format_to(out, "{:7.3f}  {:7.3f}  {:<8.3g}  {:5.1f} %{}\n", head.entropy, head.largest, head.gauge, 100 * head.passed,
                     head.saturated ? "  saturated" : "");
  }
  const auto count = std::count_if(heads.begin(), heads.end(), [](const auto& head) { return head.saturated; });
  if (count > 0)
    fmt::format_to(out, "{} of {} heads saturated: less than {:.0f} % of the gradient that equal weights would pass reaches queries and keys\n",
                   count, heads.size(), 100 * saturated_below);
  return text;
}

}  // namespace

AttentionReport attention_report(const Tensor& weights, const Mask& mask) {
  if (weights.dim() < 2 || weights.dim() > 4)
    detail::raise<ShapeError>("{}: wants (B, H, Tq, Tk), (H, Tq, Tk) or (Tq, Tk): shape {}", name, weights.shape());
  if (!detail::is_float(weights.dtype())) detail::raise<DTypeError>("{}: wants f32 or f64, not {}", name, weights.dtype());
  const NoGrad off;
  const std::vector<bool> allowed = allowed_keys(mask, weights);
  const std::vector<double> p = weights.to_vector<double>();
  const auto Tk = static_cast<std::size_t>(weights.size(-1)), Tq = static_cast<std::size_t>(weights.size(-2));
  const auto H = static_cast<std::size_t>(weights.dim() > 2 ? weights.size(-3) : 1);
  Dims rows_shape = weights.shape();
  rows_shape.pop_back();
  const auto rows = static_cast<std::size_t>(detail::numel(rows_shape));
  std::vector<double> entropy(rows), largest(rows), gauge(rows);
  AttentionReport report;
  report.heads.resize(H);
  for (std::size_t r = 0; r < rows; ++r) {
    std::size_t keys = 0;
    double spread = 0;
    for (std::size_t j = r * Tk; j < (r + 1) * Tk; ++j) {
      if (!allowed[j]) continue;
      ++keys;
      if (p[j] != 0) entropy[r] -= p[j] * std::log(p[j]);
      largest[r] = std::isnan(p[j]) ? p[j] : std::max(largest[r], p[j]);
      spread += p[j] * (1 - p[j]);
    }
    if (keys > 0) gauge[r] = spread / static_cast<double>(keys);
    if (keys < 2) continue;
    AttentionReport::Head& head = report.heads[r / Tq % H];
    head.entropy += entropy[r], head.largest += largest[r], head.gauge += gauge[r];
    head.passed += spread / (1 - 1 / static_cast<double>(keys));
    ++head.rows;
  }
  for (AttentionReport::Head& head : report.heads) {
    if (head.rows == 0) continue;
    for (double* mean : {&head.entropy, &head.largest, &head.gauge, &head.passed}) *mean /= static_cast<double>(head.rows);
    head.saturated = head.passed < saturated_below;
    report.saturated |= head.saturated;
  }
  report.entropy = from_vector(entropy, rows_shape), report.largest = from_vector(largest, rows_shape), report.gauge = from_vector(gauge, rows_shape);
  report.text = table(report.heads);
  return report;
}

}  // namespace heed::nn
