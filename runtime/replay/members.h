// Who is in a group, by a rank's own trace.
#pragma once

#include <algorithm>

#include "base/check.h"
#include "trace/run.h"

namespace lockstep {

// Null: the trace does not declare the group.
inline const RankList* find_members(const RankTrace& trace, GroupId group) {
  const auto found = std::find_if(trace.groups.begin(), trace.groups.end(),
                                  [&](const auto& g) { return g.group == group; });
  return found == trace.groups.end() ? nullptr : &found->ranks;
}

// Of a program (program.h), which declares all groups that it calls in.
inline const RankList& members_of(const RankTrace& trace, GroupId group) {
  const RankList* const members = find_members(trace, group);
  LOCKSTEP_CHECK(members != nullptr, "a program declares its groups");
  return *members;
}

}  // namespace lockstep
