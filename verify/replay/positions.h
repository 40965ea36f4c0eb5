// Where each rank stands at the end of the replay: how it ended, and the call in which it waits.
#pragma once

#include <vector>

#include "verify/replay/advance.h"
#include "verify/replay/replay.h"

namespace lockstep::verify {

// By rank index. `at`: at its end. O(ranks), plus the queue of each rank's open calls.
std::vector<Position> final_positions(const Advance& at);

}  // namespace lockstep::verify
