// What MPI leaves open about blocking: standard sends need not be buffered, and collectives may
// synchronise. A program that ended well only because they were, or did not, is at fault.
//
// A second replay, from the semantics alone, in which every send waits for its receive and every
// collective for all its members. Matching is the same, so that what is stuck there is stuck
// whenever the library chooses to block: `possible`, an error. A third one with buffered sends
// tells whether it is the sends or the collectives that matter.
//
// Cost: two replays, O(events log events).
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// To be asked where nothing else was found. `choices`: what receives from any source take; nullptr
// where there are none.
std::vector<Cause> check_rendezvous(const Context& context, const WildcardChoices* choices);

}  // namespace lockstep::verify
