// Groups that have a name in common and nothing else.
//
// c10d names a group by a counter of the rank. Where the ranks are split into groups (split_group,
// device meshes), each rank makes only its own, and ranks 0 and 1 call theirs "1" as ranks 2 and 3
// do: two groups. They are told apart by their members: lists under one name that have no rank in
// common, each given by its own members only.
#pragma once

#include "trace/run.h"

namespace lockstep {

// Gives each of such groups a name of its own, "1 [2, 3]", in declarations, calls and counters.
// Lists that overlap, or that a rank outside of them gives, stay one group: they are a
// group-divergence. Equal lists are one object afterwards (RankTrace::Membership).
// O(members of distinct lists + memberships · log + calls of the ranks concerned).
void separate_namesakes(Run& run);

}  // namespace lockstep
