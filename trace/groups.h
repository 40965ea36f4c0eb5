// Communicators whose members no process knows: NCCL tells each process its own place in a
// communicator and the number of places, nothing of the others. Together the traces of all
// processes tell the members.
//
// Until then a trace declares such a group by an unlinked membership: instead of members it holds
// two numbers, the place and the size; roots and peers of its calls are places, too. The name is
// the communicator's, the same in all its processes and in no other communicator.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/run.h"

namespace lockstep::trace {

// 0 <= place < size. `desc`: what the program calls the communicator; may be empty.
RankTrace::Membership unlinked_membership(GroupId group, std::int32_t place, std::int32_t size,
                                          std::string_view desc, Tables& tables);

bool is_unlinked(const RankTrace::Membership& membership, const Tables& tables);
// True where the trace declares any.
bool has_unlinked(const RankTrace& trace, const Tables& tables);

struct LinkOptions {
  // For sources in which a trace's rank is a guess. Where two claim one, all are numbered anew by
  // host and process; all get one number of ranks; and nothing is concluded for absent traces.
  bool ranks_are_guesses = false;
};

// Gives the unlinked communicators of `traces` their members where all of them were found, and
// turns places into global ranks; what was not found becomes unknown. The first communicator of all
// ranks is called "world"; its places are ranks, so that a missing trace does not hide its members.
// Traces without such communicators stay as they are. O(memberships · log + calls concerned).
void link_communicators(std::span<RankTrace> traces, Tables& tables, LinkOptions options = {});

// Groups that have a name in common and nothing else.
//
// c10d names a group by a counter of the rank. Where the ranks are split into groups (split_group,
// device meshes), each rank makes only its own, and ranks 0 and 1 call theirs "1" as ranks 2 and 3
// do: two groups. They are told apart by their members: lists under one name that have no rank in
// common, each given by its own members only.

// Gives each of such groups a name of its own, "1 [2, 3]", in declarations, calls and counters.
// Lists that overlap, or that a rank outside of them gives, stay one group: they are a
// group-divergence. Equal lists are one object afterwards (RankTrace::Membership).
// O(members of distinct lists + memberships · log + calls of the ranks concerned).
void separate_namesakes(Run& run);

}  // namespace lockstep::trace
