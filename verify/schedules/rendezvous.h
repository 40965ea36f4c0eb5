// Finds programs that depend on what MPI leaves open about blocking: standard sends need not be
// buffered, and collectives may synchronise.
//
//   rank 0  send(1)  recv(1)      works while both sends are buffered, and deadlocks once the
//   rank 1  send(0)  recv(0)      messages are too large for the library's buffers
//
// A second replay, by the semantics alone, lets every send wait for its receive and every
// collective for all its members. The matching is the same, so what is stuck there is stuck
// whenever the library blocks: an error with certainty `possible`. A third replay with buffered
// sends shows whether the sends or the collectives are the reason.
//
// Cost: two replays, O(events log events).
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Call it where nothing else was found. `choices`: the messages that receives from any source take;
// nullptr where there are no such receives.
std::vector<Cause> check_rendezvous(const Context& context, const WildcardChoices* choices);

}  // namespace lockstep::verify
