// Calls of several NCCL communicators that are under way at once, in orders that may lock.
//
// Ranks that issue asynchronous collectives of two groups in opposite orders often get away with
// it: the host goes on, and both kernels run side by side. Where they do not (the device has no
// room left, or runs them one after the other) each rank's device runs a kernel that waits for the
// other rank's second one: a deadlock that comes once a day. NCCL asks for one order on all devices
// (NCCL user guide, "Using multiple NCCL communicators concurrently").
//
// The graph: a vertex for each meeting of a group; an edge to each group's next meeting, whose
// kernels run in order; and an edge m -> n where some rank issued n while m, of another group, was
// under way there. Where all devices run their kernels one by one, the meetings run in an order
// that every edge respects: a circle is a schedule in which nobody gets on. A rank that waits for m
// before it issues n gives no edge, so that only circles are named in which nothing but luck orders
// the calls.
//
// Only for NCCL, only for ranks whose trace records waits at all.
//
// Cost: O(events · groups under way at once + edges log edges).
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

struct OrderInversions {
  std::vector<Cause> causes;   // one for each set of groups that close a circle
  bool waits_unknown = false;  // calls overlap as far as one sees, but no waits were recorded
};

OrderInversions check_order_inversions(const Context& context);

}  // namespace lockstep::verify
