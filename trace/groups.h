// Communicators whose members no process knows: each process learns from NCCL its own rank in a
// communicator and the communicator's size, but not who the others are. Only the traces of all
// processes together tell the members.
//
// Until then a trace declares such a group by an unlinked membership. Instead of members it holds
// two numbers, the group rank and the size. Roots and peers of its calls are group ranks, too. The
// name identifies the communicator in all its processes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trace/run.h"

namespace lockstep::trace {

// An unlinked membership. `group_rank`: the group rank, 0 <= group_rank < size. `desc`: the
// program's name for the communicator; may be empty.
RankTrace::Membership unlinked_membership(GroupId group, std::int32_t group_rank, std::int32_t size,
                                          std::string_view desc, Tables& tables);

// Whether its members are still to be found.
bool is_unlinked(const RankTrace::Membership& membership, const Tables& tables);
// Whether the trace declares any.
bool has_unlinked(const RankTrace& trace, const Tables& tables);

struct LinkOptions {
  // For sources in which a trace's rank is a guess: if two traces claim one rank, all get new
  // numbers by host and process; and all get the same world size. Processes without a trace are
  // members only where the known members of the world are its ranks, and their places leave no
  // choice.
  bool ranks_are_guesses = false;
};

// Gives the unlinked communicators of `traces` their members, if all were found, and turns group
// ranks into global ranks; what was not found becomes unknown. The first communicator of all ranks
// is named "world". Its group ranks are global ranks, so a missing trace does not hide its members.
// Traces without such communicators stay as they are. O(memberships · log + their calls).
void link_communicators(std::span<RankTrace> traces, Tables& tables, LinkOptions options = {});

// Separates groups that only have their name in common.
//
// c10d names groups by a counter in each rank. Where ranks are split into groups (split_group,
// device meshes), each rank creates only its own, and both ranks 0, 1 and ranks 2, 3 name theirs
// "1": two groups. They are recognised by their members: lists under one name without a common
// rank, each declared by its own members only.
//
// Such groups get names of their own, "1 [2, 3]", in declarations, calls and counters. Lists that
// overlap, or that a rank outside of them declares, stay one group: they are a group-divergence.
// Afterwards equal lists are one object (RankTrace::Membership).
// O(members of distinct lists + memberships · log + calls of the renamed groups' ranks).
void separate_namesakes(Run& run);

// The group as the rank declared it; null where it did not. O(groups of the rank).
const RankTrace::Membership* membership(const RankTrace& trace, GroupId group);

// The description that the program gave the group ("TENSOR_MODEL_PARALLEL"); empty where it gave
// none. Valid as long as `tables`.
std::string_view description_of(const Tables& tables, const RankTrace::Membership& group);

// "TENSOR_PARALLEL" of "TENSOR_PARALLEL (22)", as groups are named whose description is recorded
// and whose members are not. Empty for other names. A view into `name`.
std::string_view kind_in_name(std::string_view name);

// What people call a group of the trace: "group world". Where its name is a number or a hash, as
// c10d's are, its description: "TENSOR_MODEL_PARALLEL_GROUP", with the name where another group of
// the rank has the same one. O(groups of the rank).
std::string group_label(const RankTrace& trace, const Tables& tables, GroupId group);

}  // namespace lockstep::trace
