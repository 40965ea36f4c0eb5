// One rank's trace for all ranks of its class: a large job is derived once per class.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::trace {

// The run of all ranks of a job, in which rank r does what rank traced[r] did, on unknown samples.
// Ranks that do the same share their events and calls, so that a run of 65,536 ranks takes a few
// MB.
//
// `copy_ranks`: the job is made of copies of that many consecutive ranks, which have groups of
// their own (the stages of a pipeline, the shards of HSDP). Then traced[r] has the same index as r
// in another copy, and r calls in the groups of its own copy, with the peers and roots there.
// Groups of a copy have its number in their names ("shard17"). Such ranks do not share their calls.
// 0: there are no copies.
//
// Errors: a traced rank without a trace, one that sends messages out of its copy, or one that calls
// in a group of several copies that lacks a rank of its class; more than kMaxSpreadCalls calls
// that are not shared. O(ranks · groups + events that are not shared).
inline constexpr std::uint64_t kMaxSpreadCalls = 20'000'000;
Result<Run> spread(Run run, const std::vector<std::int32_t>& traced, std::int32_t copy_ranks = 0);

// Leaves out which samples the rank read. For a trace that stands for a rank with other samples:
// equal ones would look like overlapping shards.
void forget_samples(RankTrace& trace);

// Moves a trace from one copy to another: `rank` becomes its rank. Nothing else changes if both are
// in one copy. Errors: those of spread() about groups and messages.
Status move_to_copy(Tables& tables, RankTrace& trace, Rank rank, std::int32_t copy_ranks);

}  // namespace lockstep::trace
