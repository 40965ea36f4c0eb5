// Process groups about which the ranks disagree, in three ways:
//
// - Members: ranks give one name different lists.
// - Names: what the groups are for (their descriptions) is exchanged between two names. c10d
//   numbers its groups, so that a rank that creates them in another order gives their names to each
//   other.
// - Order: each of some groups was created before another one by a rank that is in both, and these
//   orders close a circle. Creating a group waits for its members (Gloo's and NCCL's set-up does,
//   MPI's may): where it does, the first group of the circle is made only after the last one, whose
//   making waits for the first. Orders that close no circle have an order that suits all of them,
//   and cannot lock; so groups that only some ranks share, or that only their members create, are
//   held against nobody.
//
// Only RankTrace::created_in_order tells an order; a format without it accuses nobody.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Ranks that give one group different members. O(memberships · log), and the members of lists that
// differ.
std::vector<Cause> check_members(const Context& context);

// Groups whose names are exchanged on some ranks: at most one finding, a warning. Calls that part
// in `groups` follow from it, and make it an error.
struct ExchangedNames {
  Cause cause;
  std::vector<std::size_t> groups;  // indices into Context::groups, ascending
};
// O(memberships log memberships).
std::vector<ExchangedNames> check_names(const Context& context);

// Circles of orders: possible, and an error only where a rank of the circle hung outside of any
// call (in making a group, perhaps). O(memberships · log + edges · log), for each set of groups
// without a common order times up to 64, fewer where its circles are long.
std::vector<Cause> check_creation_order(const Context& context);

// Whether several groups are shared by two ranks or more, and no trace tells their order.
bool creation_order_unknown(const trace::Run& run);

}  // namespace lockstep::verify
