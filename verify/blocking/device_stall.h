// Devices that stand still while their hosts went on, in looks at running processes (unanswered.h).
//
// Skew is no error: a rank that does not yet see a call completed, which its peers have left behind
// without waiting for anything, is just seen a little earlier.
#pragma once

#include <optional>
#include <string>

#include "verify/context.h"

namespace lockstep::verify {

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

}  // namespace lockstep::verify
