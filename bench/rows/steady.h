#pragma once

#include <cstdint>
#include <optional>

namespace heed::bench {

/// What a steady training step should not do. Differences of two readings are what a stretch of work did.
struct Steady {
  std::int64_t blocks = 0;              ///< blocks from heed's free lists
  std::int64_t system_allocations = 0;  ///< blocks that no free list could serve
  std::int64_t page_faults = 0;         ///< pages that the system gave to the process: what memory from the system costs
  std::int64_t primitives = 0;          ///< oneDNN primitives made by this thread
  /// Of the whole process, all libraries included: counted by standing in front of the C library and of GNU's OpenMP, so only where these are.
  std::optional<std::int64_t> mallocs = {}, locks = {}, parallel_regions = {};
};
Steady steady_counters();

}  // namespace heed::bench
