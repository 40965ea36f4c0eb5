// The calls of a rank's trace, of which a log tells some and the other ranks' logs more.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

// A call from which rebuild() makes the trace's columns.
struct PlannedCall {
  GroupId group;
  SignatureId signature;
  std::int64_t seq = 0;  // from 0
  bool message = false, completed = false, waits = false;
};

// Makes a trace's calls and events again, with the calls of each group in the order of their
// numbers. Exceptions are kept, after all calls. O(calls log calls).
void rebuild(RankTrace& trace, std::vector<PlannedCall> planned);

}  // namespace lockstep::trace
