// Overtaking: ranks that wait in a call although another one, in which their peers wait for them,
// should have come first.
//
//   rank 0  all_reduce(tp0)                  waits here for rank 1
//   rank 1                   all_reduce(dp)  waits here for 0: it overtook all_reduce(tp0)
//   rank 2  all_reduce(tp1)  all_reduce(dp)  a witness: tp1 is a sister group of tp0, and comes
//   rank 3  all_reduce(tp1)  all_reduce(dp)  before dp
//
// Two groups that wait for each other look the same from both sides: either may be too early.
// Witnesses decide which call comes first: members of sister groups (as many members, the same
// description) that issued their own group's call of that kind before the call that all of them are
// in. Without witnesses, the last round of the ranks themselves decides. A round is what a rank
// issued since its last call like the one it is in. A rank with fewer calls of the kind in its
// round than the others overtook them.
//
// There is no result where nobody else is in the second call (two groups of the same ranks, entered
// in opposite orders), where both orders are equally common, or where records were lost.
//
// Cost: the rounds of the waiting ranks, for each of the first kMaxKinds kinds of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

struct Overtaking {
  std::vector<std::size_t> overtaken;    // wait points of the same call in sister groups; ascending
  std::size_t at = SIZE_MAX;             // the wait point that the deviants are in
  std::vector<std::uint32_t> deviants;   // rank indices, ascending
  std::vector<std::uint32_t> witnesses;  // ranks in the usual order; empty: the deviants' own past
  // The deviants never issue the call. False: they issue it later, which is known because the
  // trace is of a whole program rather than of a run that hung, or because it is queued on their
  // devices.
  bool left_out = true;
};

inline constexpr std::size_t kMaxKinds = 16;

// The overtaking in a cycle, if there is one; `points` are those in which its ranks wait.
std::optional<Overtaking> find_overtaking(const Context& context,
                                          const std::vector<std::size_t>& points);

// The cause where the call was left out: missing-collective, in the first of the groups.
Cause explain_left_out(const Context& context, const Overtaking& overtaking);

}  // namespace lockstep::verify
