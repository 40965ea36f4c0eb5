// Process groups about which the ranks disagree, in three ways:
//
// - Members: ranks give different member lists for one name.
// - Names: the descriptions of two groups are exchanged. c10d names groups by counting them, so a
//   rank that creates two groups in the opposite order gives each the other's name.
// - Order: ranks created groups in orders that form a cycle. Creating a group waits for its members
//   (in Gloo and NCCL; MPI may), so this can deadlock:
//
//     rank 0  new_group(a)  new_group(b)      waits in a for rank 1
//     rank 1  new_group(b)  new_group(a)      waits in b for rank 0
//
//   Orders without a cycle are compatible with one common order and cannot deadlock. So it is no
//   fault that only some ranks share a group, or that only its members create it.
//
// Only RankTrace::created_in_order records an order. Traces of formats without it have no findings
// of the last kind.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Finds groups to which ranks give different members. O(memberships · log), plus the members of
// lists that differ.
std::vector<Cause> check_members(const Context& context);

// Groups whose names are exchanged on some ranks: at most one finding, a warning. It becomes an
// error when calls in `groups` deviate, which are then its consequences.
struct ExchangedNames {
  Cause cause;
  std::vector<std::size_t> groups;  // indices into Context::groups, ascending
};
// O(memberships log memberships).
std::vector<ExchangedNames> check_names(const Context& context);

// Finds cycles in the orders of creation. Their certainty is "possible"; they are errors only where
// a rank of the cycle hung outside of any call, perhaps while it created a group.
// O(memberships · log + edges · log), times up to 64 for each set of groups without a common order.
std::vector<Cause> check_creation_order(const Context& context);

// Whether two or more groups are shared by several ranks and no trace records their order.
bool creation_order_unknown(const trace::Run& run);

}  // namespace lockstep::verify
