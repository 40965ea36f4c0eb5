// Updates between which a rank synchronised nothing, seen in its calls.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/run.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_table.h"

namespace lockstep {

// Rank indices whose traces hold no reduction that could have synchronised the parameter between
// `row` and the one before it, although they hold calls: other reductions, or at least some
// collective. Where reductions name parameters of the table, those of this one count, else all.
// O(events of the ranks + names).
std::vector<std::uint32_t> ranks_without_sync(const Run& run, const ValueTable& table,
                                              const SyncCalls& calls, const ValueRow& row);

}  // namespace lockstep
