// Ranks that meet in calls of different training steps: a rank left out a whole step, so that its
// gradients of step 3 are added to the others' of step 2, and nothing hangs as long as the numbers
// of calls come out equal.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Groups whose members' calls agree in everything but the step, for a whole step or more: to the
// end, or until a later difference brings them together again. A label that is late by a call is no
// fault. Steps are labels that a program gives itself; they compare where all members began with
// the same one. Where the numbers of calls differ, find_deviations says more. O(calls of the
// different classes).
std::vector<Cause> check_step_offsets(const Context& context);

}  // namespace lockstep::verify
