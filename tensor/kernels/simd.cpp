#include "simd.h"

// After simd.h, which says for which targets kernels are compiled.
#include <hwy/targets.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace heed::kernels {
namespace {

/// What this CPU has of the compiled targets, the best first: better ones have lower bits.
const std::vector<std::int64_t>& usable() {
  static const std::vector<std::int64_t> all = hwy::SupportedAndGeneratedTargets();  // before any is turned off
  return all;
}

}  // namespace

std::string simd_target() {
  const auto allowed = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(allowed & (~allowed + 1));
}

std::string simd_targets() {
  std::string names;
  for (const std::int64_t target : usable()) names += (names.empty() ? "" : " ") + std::string(hwy::TargetName(target));
  return names;
}

bool limit_simd_targets() {
  const std::string all = simd_targets();
  const char* const name = std::getenv("HEED_SIMD");
  if (!name || !*name) return false;
  for (const std::int64_t target : usable()) {
    if (std::string(name) != hwy::TargetName(target)) continue;
    hwy::DisableTargets(target - 1);
    return true;
  }
  std::fprintf(stderr, "heed: HEED_SIMD=%s is not used: this build and this CPU have %s\n", name, all.c_str());
  return false;
}

}  // namespace heed::kernels
