#pragma once

#include <string>

namespace heed {

/// "0.1.0"
std::string version();
/// One line for bug reports: version, compiler, build type, SIMD target, oneDNN, threads.
std::string build_info();

}  // namespace heed
