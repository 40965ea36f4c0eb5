// Ranks that wait for each other in a cycle: which of them deviated from the program, and how?
#pragma once

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Explains the cycle of `wait` by a call that one of its ranks left out or issued once too often.
// Where there is none, by the cycle itself; ranks that stand out are named. O(64 · calls) for each
// of up to 64 ranks of the cycle.
Cause explain_cycle(const Context& context, const WaitCause& wait);

}  // namespace lockstep::verify
