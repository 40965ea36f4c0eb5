// Which calls of different ranks belong together: the members of one collective, the two sides of
// one message. For pictures that connect them.
//
// Collectives match by (group, sequence number), messages by (source, destination, tag, group) in
// order. Receives from any source or with any tag are not matched: which message they took depends
// on the schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/run.h"

namespace lockstep::reports {

struct MatchedCalls {
  static constexpr std::uint32_t kAlone = UINT32_MAX;

  // By rank index and call: a number that matching calls share, or kAlone. Calls in groups whose
  // streams cannot be lined up (GroupStreams::comparable) are kAlone.
  std::vector<std::vector<std::uint32_t>> instance;
  // By rank index and call: the sequence number in the group, counted from the start of the run if
  // that is known; for messages among the rank's own.
  std::vector<std::vector<std::uint64_t>> seq;
  std::uint32_t count = 0;  // of different numbers in `instance`; some have one member
};

// O(calls log calls), 12 bytes per call.
MatchedCalls match_calls(const trace::Run& run);

}  // namespace lockstep::reports
