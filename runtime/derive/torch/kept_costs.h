// Which costs are kept of a rank that is looked at alone (alone/work_count.h).
#pragma once

#include <cstdint>

namespace lockstep {

// What is kept of a rank's work beside its trace.
enum class KeptCosts : std::uint8_t {
  none,
  counts,  // operations, bytes, kernels
  times,   // how long it took, here and now
};

}  // namespace lockstep
