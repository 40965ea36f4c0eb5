// The life of one operation: issued, completed, waited for.
#pragma once

#include <vector>

#include "verify/context.h"
#include "verify/matching.h"

namespace lockstep {

// Asynchronous operations that a rank which ended cleanly never waited for, although it, or a peer
// in the same call, does wait for such calls. O(calls).
std::vector<Cause> check_lifecycle(const Context& context);

}  // namespace lockstep
