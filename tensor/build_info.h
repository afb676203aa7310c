#pragma once

#include <string>

namespace heed {

/// "0.1.0"
std::string version();
/// One line for bug reports: version, compiler, build type, "AVX2 of AVX3 AVX2 SCALAR" (the SIMD target in use, of those that this build and this
/// CPU have: HEED_SIMD=AVX2 in the environment makes AVX2 the best one used), oneDNN (limited by ONEDNN_MAX_CPU_ISA), threads.
std::string build_info();

}  // namespace heed
