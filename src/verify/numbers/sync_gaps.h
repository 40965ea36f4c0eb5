// Updates between which a rank synchronised nothing, seen in its calls.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/run.h"
#include "verify/numbers/value_table.h"

namespace lockstep {

// Rank indices whose traces hold no reduction that could have synchronised the parameter between
// the row before `row` in `series` and `row`, although they hold calls: other reductions, or at
// least some collective. Where reductions name what they carry, those of this parameter count.
// O(events of the ranks).
std::vector<std::uint32_t> ranks_without_sync(const Run& run, const Series& series,
                                              const ValueRow& row);

}  // namespace lockstep
