// Which calls of different ranks belong together: the members of one collective, the two sides of
// one message. For pictures that join them.
//
// Collectives meet by (group, place in the group's sequence), messages by (source, destination,
// tag, group) in order. What takes a message from any source, or with any tag, is left alone: which
// message it took depends on the schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/run.h"

namespace lockstep::reports {

struct MatchedCalls {
  static constexpr std::uint32_t kAlone = UINT32_MAX;

  // By rank index and call: a number that the calls that meet share, or kAlone. Groups whose
  // streams nothing lines up (GroupStreams::comparable) are left alone.
  std::vector<std::vector<std::uint32_t>> meeting;
  // By rank index and call: the place in the group's sequence, counted from the start of the run
  // where that is known; of messages in the rank's own ones.
  std::vector<std::vector<std::uint64_t>> seq;
  std::uint32_t count = 0;  // of meetings; some have one member
};

// O(calls log calls), 12 bytes for each call.
MatchedCalls match_calls(const trace::Run& run);

}  // namespace lockstep::reports
