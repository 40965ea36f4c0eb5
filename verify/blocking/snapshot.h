// What only a look at running processes needs (RankTrace::snapshot: Flight Recorder dumps): the
// calls are asynchronous, nobody's wait is recorded, and ranks are seen at different moments.
// What their devices show: device_stall.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"
#include "verify/matching/explain_deviation.h"

namespace lockstep {

// True where any trace is a snapshot.
bool is_snapshot(const Run& run);

// A few ranks wait in a call that nobody else issued: did they issue an extra call before, which
// paired with the others' next one? Source places stand in for what calls carry: where leaving out
// up to kMostExtra of the few's calls makes all that follow agree, they did. O(calls of the group).
std::optional<Cause> find_extra_before(const Context& context, const WaitCause& wait);
inline constexpr std::size_t kMostExtra = 8;

// Why a wait shows no fault: half of the group or more are not there, and have never made such a
// call before, so that the few may just be ahead. Empty: it shows one.
std::string may_be_ahead(const Context& context, const WaitCause& wait);

}  // namespace lockstep
