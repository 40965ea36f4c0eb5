// Receives that wait while a message for them lies there with another tag, or in another group.
//
// Why the two do not meet is the cause, whatever else the ranks wait for by then.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// One finding per waiting rank. O(messages left + waiting ranks, log).
std::vector<Cause> check_near_misses(const Context& context);

}  // namespace lockstep::verify
