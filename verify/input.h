// What is wrong with the input itself: ranks without a trace, damage, contradictions.
#pragma once

#include <vector>

#include "trace/run.h"
#include "verify/report.h"

namespace lockstep {

struct InputState {
  std::vector<Rank> missing;  // took part by header or group, but no trace was given
  std::vector<Rank> damaged;  // records could not be used, or the file was cut off
  std::vector<Finding> findings;
};

// `live`: a trace without end mark is still being written, not cut off. O(world size).
InputState check_input(const Run& run, bool live);

}  // namespace lockstep
