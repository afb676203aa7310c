#pragma once

// Private to gradient checks: what was found, as a table and as JSON.

#include <string>
#include <vector>

#include "gradcheck.h"
#include "numeric_derivative.h"

namespace heed::detail {

/// What was looked at of one input.
struct InputSummary {
  std::string name;
  Index elements = 0, looked_at = 0;  ///< looked_at < elements where elements were sampled
  std::size_t wrong = 0, kinks = 0;   ///< kinks are among the wrong ones
  std::size_t undecided = 0;
  bool has_effect = false;  ///< some derivative by it, analytic or numeric, is not 0
};

struct ReportParts {
  std::string headline;  ///< mode and numbers
  std::vector<InputSummary> inputs;
  std::vector<std::string> notes;  ///< lines below the table
  Verdict worst = Verdict::ok;     ///< of all that was looked at
};

/// Rising from ok.
int severity(Verdict);

GradcheckEntry make_entry(std::string name, Dims index, std::string output, double analytic, const Judgment&);
/// Fills `ok`, `verdict` and `message` from the parts and the report's entries.
void finish(GradcheckReport&, const ReportParts&, const GradcheckOptions&);

}  // namespace heed::detail
