#include "build_info.h"

#include "kernels/onednn.h"
#include "kernels/simd.h"
#include "parallel.h"
#include "raise.h"

namespace heed {

std::string version() { return HEED_VERSION; }

std::string build_info() {
  const std::string onednn = kernels::onednn::available() ? "oneDNN " + kernels::onednn::version() : "without oneDNN";
#ifdef _OPENMP
  constexpr const char* threads = "OpenMP";
#else
  constexpr const char* threads = "without OpenMP";
#endif
  return fmt::format("heed {}, {}, {}, {} of {}, {}, {}, {} threads", version(), HEED_COMPILER, HEED_BUILD_TYPE, kernels::simd_target(),
                     kernels::simd_targets(), onednn, threads, detail::num_threads());
}

}  // namespace heed
