// One rank's trace for many: a job whose ranks are alike in classes is derived once per class.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::trace {

// The run of all ranks of a job, in which rank r does what rank traced[r] did, on samples that are
// not known. `shard_ranks`: where that many consecutive ranks form the groups "shard0", "shard1", …
// (HSDP), rank r calls in its own instead of traced[r]'s; 0: there are none. Errors: a traced rank
// without a trace, that sends messages, or that calls in another group without the ranks that it
// represents; more than kMostSpreadEvents events.
inline constexpr std::uint64_t kMostSpreadEvents = 20'000'000;
Result<Run> spread(Run run, const std::vector<std::int32_t>& traced, std::int32_t shard_ranks = 0);

}  // namespace lockstep::trace
