// Ranks of which PyTorch's watchdog said nothing and NCCL's RAS says how many calls they launched.
//
// RAS asks a job that may go on meanwhile, so that its counts alone prove nothing. But where each
// rank that gave up waiting had queued as many calls in the default group as RAS counted on it, and
// they can queue no more, RAS asked while they waited; and a rank that by then had launched fewer
// calls than the one in which they wait had not come to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

// How many calls a rank launched that launched fewer than others, in the communicator of all ranks.
struct LaunchedCalls {
  Rank rank;
  std::int64_t own = 0;   // that it launched
  std::int64_t most = 0;  // that the others did
  std::string source;     // the file that says it
};

// Adds traces of such ranks to those of a watchdog's log, which are not linked yet: they tell their
// counters, as a watchdog would. O(traces + launched).
void add_ranks_behind(std::vector<RankTrace>& traces, const std::vector<LaunchedCalls>& launched,
                      Tables& tables);

}  // namespace lockstep::trace
