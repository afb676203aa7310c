#pragma once

#include <heed/heed.h>

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

/// What the exercise asks for, in solution.cpp: Q, K (T, d_k) and V (T, d_v) -> output (T, d_v) and weights (T, T).
heed::Attention attention(const heed::Tensor& Q, const heed::Tensor& K, const heed::Tensor& V);

using AttentionFunction = std::function<heed::Attention(const heed::Tensor& Q, const heed::Tensor& K, const heed::Tensor& V)>;

struct Check {
  std::string name;
  std::string problem;  ///< what was wrong; empty for a check that passes
};

struct Verdict {
  std::vector<Check> checks;  ///< six
  std::string hint;           ///< the likely mistake; empty when all checks pass
};

Verdict judge(const AttentionFunction&);

/// Writes it for people; whether all checks pass.
bool report(const Verdict&, std::ostream&);

/// The mistake that would explain what the function does, from what it returns for some inputs; empty when none of those known does.
std::string recognize(const AttentionFunction&);
