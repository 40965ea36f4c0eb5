// Dumps that an earlier attempt of the job left in the folder of the newest one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::trace {

struct OtherAttempt {
  std::vector<Rank> ranks;  // whose dumps are of it, ascending
  std::string why;          // a sentence about their times
};

// The ranks whose dumps cannot be of one job with those of most: one rank completed a call of a
// group minutes before another one issued that call or an earlier one, and an all-reduce,
// all-gather, reduce-scatter or barrier cannot complete before all members issued it. A clock that
// is minutes wrong looks the same. If the sides are equal, the older one is the leftover. Only
// for snapshots (their times are those of the day); nothing where no call shows it.
// O(memberships + events of the ranks).
std::optional<OtherAttempt> find_other_attempt(const Run& run);

}  // namespace lockstep::trace
