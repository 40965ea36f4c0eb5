// Which ranks are proven never to continue.
#pragma once

#include <vector>

#include "verify/replay/replay.h"

namespace lockstep::verify {

// By rank index. Least fixpoint: a waiting rank may move once every rank that its call misses may
// move; what is not in the fixpoint is stuck. Counters per wait point make it linear.
// O(waiting ranks + missing members).
//
//   rank 0 waits for 1, rank 1 for 2, rank 2 runs:   2, then 1, then 0 may move
//   rank 0 waits for 1, rank 1 for 0:                nobody starts, both are stuck
std::vector<bool> find_stuck(const std::vector<Position>& positions,
                             const std::vector<WaitPoint>& points);

}  // namespace lockstep::verify
