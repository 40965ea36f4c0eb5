// Explains who waits for whom at the end: deadlocks, stalls, exceptions, ranks that finished early
// (blocking.cc); stalled devices (device_stall.cc); and calls that may deadlock under other timing
// (order_inversions.cc).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Explains one part of the wait-for graph as a cause of its own. Used where no deviation between
// streams explains it.
Cause explain_wait(const Context& context, const WaitCause& wait);

// Ranks that all stay in the creation of a process group, by their stacks, while no call is open:
// nobody waits for them but they themselves. Nothing where some rank may still come.
std::optional<Cause> explain_stay_in_creation(const Context& context);

// The same part as a consequence of a known cause: "ranks 0, 2 wait in … for rank 1".
Finding wait_consequence(const Context& context, const WaitCause& wait);

// Device stalls: ranks that issued a collective and did not complete it, although peers completed
// it and wait in a later collective of the same group. Found in snapshots of running processes
// (program_divergence.h), by the states of the calls and the ranks' own counters.
//
// Skew is no stall: if the peers wait for nothing, a rank that has not completed a call yet was
// just looked at a little earlier.
//
// There is one cause for all groups, in the group that shows it best: the one with most members,
// then with the largest lag. A call that some member saw completed stalls nobody.
//
// In a group of four or more, lagging ranks may just have been looked at earlier (undecided) if
// they are the majority, or more than a quarter and nothing in their dumps is newer than the peers'
// completion. Otherwise they stall.
//
// O(calls + events + counters · log), whatever the number of groups.
struct DeviceStall {
  std::optional<Cause> cause;
  std::string undecided;  // why the dumps do not show; empty: they do
};
DeviceStall find_device_stall(const Context& context);

// The same rule for one call of a group: whether the ranks `behind`, which had not completed call
// `seq` when those `ahead` had, may only have been dumped earlier. Rank indices, ascending; `group`
// is an index into the context's groups. O(calls and events of these ranks).
bool may_be_dumped_earlier(const Context& context, std::size_t group,
                           const std::vector<std::uint32_t>& behind,
                           const std::vector<std::uint32_t>& ahead, std::uint64_t seq);

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

struct OrderInversions {
  std::vector<Cause> causes;   // one for each set of groups that form a cycle
  bool waits_unknown = false;  // calls seem to overlap, but no waits were recorded
};

// Empty for other semantics than NCCL's.
OrderInversions check_order_inversions(const Context& context);

}  // namespace lockstep::verify
