#include "simd.h"

// After simd.h, which says for which targets kernels are compiled.
#include <hwy/targets.h>

namespace heed::kernels {

const char* simd_target() {
  const auto usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & (~usable + 1));  // better targets have lower bits
}

}  // namespace heed::kernels
