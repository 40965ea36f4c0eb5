// What only a look at running processes needs (RankTrace::snapshot: Flight Recorder dumps): the
// calls are asynchronous, nobody's wait is recorded, and ranks are seen at different moments.
//
// Skew is no error: a rank that does not yet see a call completed, which its peers have left behind
// without waiting for anything, is just seen a little earlier.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/context.h"
#include "verify/matching.h"
#include "verify/wait_graph.h"

namespace lockstep {

// True where any trace is a snapshot.
bool is_snapshot(const Run& run);

// Device stalls: ranks that issued a collective which peers completed, and did not complete it
// themselves, while those peers wait in a later one of the same group. By the entries' states and
// the ranks' own counters. One cause for all groups, placed in the one that shows it best (most
// members, then largest lag). A call that some member saw completed stalls nobody.
// Where there is none, and every call was enqueued by everybody it needs: devices that took two
// calls in opposite orders, as a circle (cross-group-deadlock, p2p-cycle, deadlock).
// O(calls + events + counters · log), however many groups there are, and O(calls of its members)
// for each call that a rank stands in.
//
// Ranks that lag stall where they are few. Of four and more, where they are most of the group, or
// more than a quarter of it and nothing in their dumps is newer than the peers' completion, they
// may as well only have been looked at earlier: undecided.
struct DeviceStall {
  std::optional<Cause> cause;
  std::string undecided;  // why the dumps do not tell; empty: they do
};
DeviceStall find_device_stall(const Context& context);

// A few ranks wait in a call that nobody else issued: did they issue an extra call before, which
// paired with the others' next one? Source places stand in for what calls carry: where leaving out
// up to kMostExtra of the few's calls makes all that follow agree, they did. O(calls of the group).
std::optional<Cause> find_extra_before(const Context& context, const WaitCause& wait);
inline constexpr std::size_t kMostExtra = 8;

// Why a wait shows no fault: both sides of its messages were posted; or half of the group or more
// are not there, and have never made such a call before, so that the few may just be ahead. Empty:
// it shows one.
std::string may_be_ahead(const Context& context, const WaitCause& wait);

}  // namespace lockstep
