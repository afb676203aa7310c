#include "gradcheck_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "../tensor/raise.h"

namespace heed {
namespace detail {

GradcheckEntry make_entry(std::string name, Dims index, std::string output, double analytic, const Judgment& judgment) {
  GradcheckEntry e;
  e.name = std::move(name), e.index = index, e.output = std::move(output);
  e.analytic = analytic, e.numeric = judgment.numeric, e.estimated_error = judgment.error;
  e.abs_error = std::abs(analytic - judgment.numeric);
  const double larger = std::max(std::abs(analytic), std::abs(judgment.numeric));
  e.rel_error = larger > 0 ? e.abs_error / larger : e.abs_error;
  e.verdict = text(judgment.verdict);
  return e;
}

int severity(Verdict v) {
  switch (v) {
    case Verdict::ok: return 0;
    case Verdict::undecided: return 1;
    case Verdict::kink: return 2;
    case Verdict::nan: return 3;
    case Verdict::wrong: break;
  }
  return 4;
}

void finish(GradcheckReport& report, const ReportParts& parts, const GradcheckOptions& options) {
  std::stable_sort(report.entries.begin(), report.entries.end(),
                   [](const GradcheckEntry& a, const GradcheckEntry& b) { return (a.verdict != "ok") > (b.verdict != "ok"); });
  report.verdict = text(parts.worst);
  const bool undecided = parts.worst == Verdict::undecided;
  report.ok = parts.worst == Verdict::ok || (undecided && options.allow_undecided);
  std::size_t name_width = 5, at_width = 8, output_width = 6;
  for (const InputSummary& s : parts.inputs) name_width = std::max(name_width, s.name.size());
  const auto at = [](const GradcheckEntry& e) {
    return e.index.empty() && e.output.starts_with("cotangent") ? "direction" : fmt::format("{}", e.index);
  };
  for (const GradcheckEntry& e : report.entries) at_width = std::max(at_width, at(e).size()), output_width = std::max(output_width, e.output.size());

  std::string& out = report.message;
  out = fmt::format("gradcheck: {}: {}\n", report.ok ? "ok" : undecided ? "UNDECIDED" : "FAILED", parts.headline);
  out += fmt::format("  {:<{}}  {:>8} {:>6}  {:<{}}  {:<{}}  {:>14} {:>14} {:>8} {:>8} {:>8}  {}\n", "input", name_width, "elements", "wrong",
                     "worst at", at_width, "output", output_width, "analytic", "numeric", "abs", "rel", "est.", "verdict");
  for (const InputSummary& s : parts.inputs) {
    bool first = true;
    for (const GradcheckEntry& e : report.entries) {
      if (e.name != s.name) continue;
      const std::string counts = first ? fmt::format("{:>8} {:>6}", s.elements, s.wrong) : fmt::format("{:>15}", "");
      out +=
          fmt::format("  {:<{}}  {}  {:<{}}  {:<{}}  {:>14.7g} {:>14.7g} {:>8.1e} {:>8.1e} {:>8.1e}  {}\n", first ? s.name : "", name_width, counts,
                      at(e), at_width, e.output, output_width, e.analytic, e.numeric, e.abs_error, e.rel_error, e.estimated_error, e.verdict);
      first = false;
    }
    if (first) out += fmt::format("  {:<{}}  {:>8} {:>6}  nothing to check\n", s.name, name_width, s.elements, 0);
  }
  for (const std::string& note : parts.notes) out += "  " + note + '\n';
  if (std::any_of(parts.inputs.begin(), parts.inputs.end(), [](const InputSummary& s) { return s.undecided > 0; }))
    out +=
        "  Undecided: the estimated error (est.) is above a tenth of the largest derivative by that input, so that right and wrong look alike. What "
        "helps:\n"
        "  outputs near 0 (subtract a constant inside the function), a smaller function, or a part of its outputs; allow_undecided lets it pass.\n";
  out.pop_back();
}

}  // namespace detail

std::string GradcheckReport::to_json() const {
  using nlohmann::json;
  const auto number = [](double x) { return std::isfinite(x) ? json(x) : json(fmt::format("{}", x)); };  // JSON has no NaN
  json list = json::array();
  for (const GradcheckEntry& e : entries)
    list.push_back({{"name", e.name},
                    {"index", std::vector<Index>(e.index.begin(), e.index.end())},
                    {"output", e.output},
                    {"analytic", number(e.analytic)},
                    {"numeric", number(e.numeric)},
                    {"abs_error", number(e.abs_error)},
                    {"rel_error", number(e.rel_error)},
                    {"estimated_error", number(e.estimated_error)},
                    {"verdict", e.verdict}});
  return json{{"ok", ok}, {"verdict", verdict}, {"message", message}, {"entries", list}}.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace heed
