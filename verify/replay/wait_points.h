// Who waits where at the end of the replay, and for whom.
#pragma once

#include <vector>

#include "verify/replay/advance.h"
#include "verify/replay/replay.h"

namespace lockstep::verify {

// Sets wait_points and point_of. `positions`: final_positions(at). O(ranks + waits · group size).
void find_wait_points(const Advance& at, const std::vector<Position>& positions, ReplayResult& out);

}  // namespace lockstep::verify
