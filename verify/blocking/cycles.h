// Ranks that wait for each other: who left the program, and how?
#pragma once

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Explains the cycle of `wait`: by a call that one of its ranks left out or made once too often,
// otherwise by the cycle itself, with the ranks that stand out. O(64 · calls) for each of up to 64
// ranks of the cycle.
Cause explain_cycle(const Context& context, const WaitCause& wait);

}  // namespace lockstep::verify
