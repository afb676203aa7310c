#include "gradcheck_probes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "../tensor/raise.h"
#include "blame.h"
#include "gradcheck_inputs.h"

namespace heed::detail {

std::vector<Finding> InputJudge::judge_all(const InputProbes& asked, const Evaluate& values, const Baseline& base) {
  largest_ = asked.largest;
  analytic_.resize(largest_.size());
  std::vector<Finding> found;
  for (const Probe& p : asked.probes) {
    if (p.first_value == p.last_value) continue;
    asked.analytic(p, analytic_);
    index_ = found.size();
    found.push_back(judge_one(p, values, base));
  }
  if (!summary_.has_effect && moves_something(values, base)) {  // by steps that are wide enough
    also_nothing_ = true;
    for (index_ = 0; index_ < found.size(); ++index_) {
      asked.analytic(found[index_].probe, analytic_);
      found[index_] = judge_one(found[index_].probe, values, base);
    }
  }
  // Directions have a value each, all of a kind.
  if (!found.empty() && found[0].probe.direction.defined()) largest_.assign(largest_.size(), *std::max_element(largest_.begin(), largest_.end()));
  std::erase_if(unseen_, [&](const Unseen& u) { return u.error <= blinding * largest_[u.value]; });  // of no account beside the largest
  if (!unseen_.empty() && std::all_of(found.begin(), found.end(), [](const Finding& f) { return f.right(); })) ask_nodes(found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Finding& a, const Finding& b) { return a.right() != b.right() ? b.right() : a.ratio > b.ratio; });
  return found;
}

Finding InputJudge::judge_one(const Probe& p, const Evaluate& values, const Baseline& base) {
  std::unique_ptr<Line> line;
  double start = 0;
  if (p.direction.defined()) {
    line = std::make_unique<DirectionLine>(leaf_, p.direction);
  } else {
    auto element = std::make_unique<ElementLine>(leaf_, p.element);
    start = element->start();
    line = std::move(element);
  }
  const double step = step_for(start, typical_, base.epsilon), size = size_for(start, typical_);
  column_.measure(*line, values, base, step);
  Finding worst{p, -1, p.first_value, 0, {}};
  blind_.clear(), suspects_.clear();
  for (std::size_t v = p.first_value; v < p.last_value; ++v) {
    const double exact = analytic_[v], numeric = column_.derivative(v), error = column_.error(v), gap = std::abs(exact - numeric);
    const double reach = std::max(std::abs(exact), std::abs(numeric));
    summary_.has_effect |= reach != 0;
    if (std::abs(numeric) - error > largest_[v]) largest_[v] = std::abs(numeric) - error;
    const double tolerance = error + 4 * base.epsilon * std::abs(exact) + (options_.nondet_tol > 0 ? slack(p) : 0);
    const double ratio = std::isnan(gap) ? std::numeric_limits<double>::infinity() : gap == 0 ? 0 : gap / tolerance;
    if (ratio > worst.ratio) worst = {p, ratio, v, exact, {ratio > 1 ? Verdict::wrong : Verdict::ok, numeric, error}};
    // An effect that would not show in the last places of the value if the input moved by all of its size is none.
    if (ratio > 1) suspects_.push_back({ratio, v});
    const bool nothing = numeric == 0 && std::abs(exact) * size <= 4 * base.epsilon * std::abs(base.values[v]);
    if (ratio <= 1 && error > blinding * reach && (!nothing || also_nothing_)) blind_.push_back(v);
  }
  std::sort(suspects_.begin(), suspects_.end(), std::greater<>());
  for (const auto& [ratio, v] : suspects_) {  // one that finer steps excuse must not hide another
    worst = {p, ratio, v, analytic_[v], judge(*line, values, base, step, v, analytic_[v])};
    if (worst.judgment.verdict == Verdict::undecided)
      blind_.push_back(v), worst.judgment.verdict = Verdict::ok;
    else if (!worst.right())
      return worst;
  }
  if (!blind_.empty()) look_wide(*line, worst, values, base, size);
  return worst;
}

void InputJudge::look_wide(Line& line, Finding& worst, const Evaluate& values, const Baseline& base, double size) {
  WideColumn wide;
  wide.measure(line, values, base, size);
  Unseen most{index_, 0, 0, 0, 0};
  double part_of_largest = -1;
  for (std::size_t v : blind_) {
    const double exact = analytic_[v];
    WideColumn::Estimate found = wide.estimate(v);
    const double narrow = v == worst.value ? std::max(column_.error(v), worst.judgment.error) : column_.error(v);
    if (narrow < found.error) found = {column_.derivative(v), narrow};
    largest_[v] = std::max(largest_[v], std::abs(found.derivative) - found.error);
    if (exact == 0 && found.derivative == 0) continue;
    summary_.has_effect = true;
    if (found.error <= blinding * std::max(std::abs(exact), std::abs(found.derivative))) {
      const double tolerance = 2 * found.error + (options_.nondet_tol > 0 ? slack(worst.probe) : 0);
      const double ratio = std::abs(exact - found.derivative) / tolerance;
      if (ratio > 1 || v == worst.value)
        worst = {worst.probe, ratio, v, exact, {ratio > 1 ? Verdict::wrong : Verdict::ok, found.derivative, found.error}};
      if (ratio > 1) return;
    } else if (const double part = found.error / largest_[v]; part > part_of_largest) {
      part_of_largest = part, most = {index_, v, exact, found.derivative, found.error};
    }
  }
  if (worst.right() && part_of_largest >= 0) unseen_.push_back(most);
}

/// Whether any bit of the values changes when the input moves by about its size.
bool InputJudge::moves_something(const Evaluate& values, const Baseline& base) const {
  std::mt19937_64 random(options_.seed);
  DirectionLine line(leaf_, normal_like(leaf_, random));
  Values moved;
  line.move(size_for(0, typical_) / 2);
  values(moved);
  return moved != base.values;
}

/// What two runs of backward may put between two derivatives of a probe.
double InputJudge::slack(const Probe& p) const {
  double moved = 1;
  if (p.direction.defined()) {
    moved = 0;
    for (double u : p.direction.to_vector<double>()) moved += std::abs(u);
  }
  return 2 * options_.nondet_tol * moved;
}

void InputJudge::ask_nodes(std::vector<Finding>& found) {
  const NodesJudgment nodes = judge_nodes(fn_, name_, leaf_, options_.seed);
  const bool right = nodes.verdict == NodesJudgment::Verdict::right;
  notes_.push_back(fmt::format("input {}: differences of the whole function are lost in its rounding; {}", name_,
                               right ? "each node between them is right by itself" : nodes.text));
  if (right) return;
  const Verdict verdict = nodes.verdict == NodesJudgment::Verdict::wrong ? Verdict::wrong : Verdict::undecided;
  for (const Unseen& u : unseen_) {
    Finding& f = found[u.finding];
    f = {f.probe, f.ratio, u.value, u.analytic, {verdict, u.numeric, u.error}};
  }
}

}  // namespace heed::detail
