// What a wait-for graph does not know: devices work through queues of their own, and a call that
// its rank enqueued behind an unfinished one need not have begun.
#pragma once

#include <optional>

#include "verify/context.h"
#include "verify/matching.h"
#include "verify/wait_graph.h"

namespace lockstep {

// Whether nobody is missing where a wait-for graph shows a wait: of every message that its roots
// hold up, both sides were posted. O(calls of those who wait).
bool all_posted(const Context& context, const WaitCause& wait);

// Where every call was enqueued by everybody it needs: devices that took two calls in opposite
// orders, as a circle (cross-group-deadlock, p2p-cycle, deadlock). O(calls of its members) for each
// call that a rank stands in.
std::optional<Cause> find_device_circle(const Context& context);

}  // namespace lockstep
