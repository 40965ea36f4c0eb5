// Who waits for whom at the end, in words: deadlocks, stalls, exceptions, ranks that finished
// early (blocking.cc); devices that stand still (device_stall.cc); and calls that may lock under
// another timing (order_inversions.cc).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// The cause of one part of the wait-for graph, as a finding of its own: used where no deviation of
// the sequences explains it.
Cause explain_wait(const Context& context, const WaitCause& wait);

// The same part as a consequence of a cause that is already known: "ranks 0, 2 wait for ever in …".
Finding wait_consequence(const Context& context, const WaitCause& wait);

// Devices that stand still while their hosts went on, in looks at running processes (unanswered.h).
//
// Skew is no error: a rank that does not yet see a call completed, which its peers have left behind
// without waiting for anything, is just seen a little earlier.
//
// Device stalls: ranks that issued a collective which peers completed, and did not complete it
// themselves, while those peers wait in a later one of the same group. By the entries' states and
// the ranks' own counters. One cause for all groups, placed in the one that shows it best (most
// members, then largest lag). A call that some member saw completed stalls nobody.
// O(calls + events + counters · log), however many groups there are.
//
// Ranks that lag stall where they are few. Of four and more, where they are most of the group, or
// more than a quarter of it and nothing in their dumps is newer than the peers' completion, they
// may as well only have been looked at earlier: undecided.
struct DeviceStall {
  std::optional<Cause> cause;
  std::string undecided;  // why the dumps do not tell; empty: they do
};
DeviceStall find_device_stall(const Context& context);

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

struct OrderInversions {
  std::vector<Cause> causes;   // one for each set of groups that close a circle
  bool waits_unknown = false;  // calls overlap as far as one sees, but no waits were recorded
};

OrderInversions check_order_inversions(const Context& context);

}  // namespace lockstep::verify
