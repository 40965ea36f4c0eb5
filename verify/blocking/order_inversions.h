// Order inversions: calls of several NCCL communicators that are under way at once, in orders that
// may deadlock.
//
//   rank 0  all_reduce(g1, async)  all_reduce(g2, async)
//   rank 1  all_reduce(g2, async)  all_reduce(g1, async)
//
// This often works: the hosts go on, and both kernels run side by side. Where a device runs them
// one after the other, or has no room for both, each device runs a kernel that waits for the other
// device's second one: a deadlock that occurs once a day. NCCL asks for the same order on all
// devices (NCCL user guide, "Using multiple NCCL communicators concurrently").
//
// The graph has a vertex for each instance of a collective, an edge to the group's next instance
// (kernels of one communicator run in order), and an edge m -> n where some rank issued n while m,
// of another group, was under way there. If every device runs its kernels one by one, the instances
// run in an order that respects all edges; a cycle is a schedule in which nobody can continue. A
// rank that waits for m before it issues n adds no edge, so only cycles in which nothing but timing
// orders the calls are reported.
//
// Only for NCCL, and only for ranks whose traces record waits.
//
// Cost: O(events · groups under way at once + edges log edges).
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

struct OrderInversions {
  std::vector<Cause> causes;   // one for each set of groups that form a cycle
  bool waits_unknown = false;  // calls seem to overlap, but no waits were recorded
};

// Empty for other semantics than NCCL's.
OrderInversions check_order_inversions(const Context& context);

}  // namespace lockstep::verify
