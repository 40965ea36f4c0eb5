// Ranks that a job does not tell apart: of each such class one stands for all when it is asked what
// they call (docs/derive.md).
#pragma once

#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep {

// Classes by their first rank; in each the ranks, ascending. Every rank is in one. A rank's number
// decides only whether it is a root (rank 0), whether it is among the ranks with images where these
// have a group of their own, and how many micro-batches it takes; what it may meet in a step is no
// part of this.
// Errors: jobs whose groups differ from rank to rank (HSDP, pipelines).
Result<std::vector<std::vector<int>>> rank_classes(const Scenario& scenario);

}  // namespace lockstep
