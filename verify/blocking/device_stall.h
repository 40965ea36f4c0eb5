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
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

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

}  // namespace lockstep::verify
