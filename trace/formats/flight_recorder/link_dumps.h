// Completes Flight Recorder dumps by each other: what one dump leaves open, the other ranks' show.
#pragma once

#include <span>

#include "trace/run.h"

namespace lockstep::trace {

// Sets world size, backend and the members of groups that no pg_config lists. Dumps of a job that
// uses nothing but Gloo, and were not taken at one moment, become inconclusive. O(calls).
void link_dumps(std::span<RankTrace> traces, Tables& tables);

}  // namespace lockstep::trace
