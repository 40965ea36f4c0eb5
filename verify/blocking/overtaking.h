// Overtaking: ranks that are in a call which has its place behind another one, in which their peers
// wait for them.
//
// Two groups that wait for each other look alike from both sides: those who wait in the one may be
// too early, or those in the other. Which call comes first is told by ranks that are at fault in
// neither: members of sister groups (as many members, the same description), who made their own
// group's call of the kind before the one that all of them are in; else by what the ranks
// themselves did the last time. A round is what a rank issued since its last call like the one it
// is in; who has fewer calls of the kind in it than the others overtook them.
//
// Nothing is said where nobody else is in the second call (two groups of the same ranks, entered in
// opposite orders), where as many ranks did the one as the other, or where records were lost.
//
// Cost: the rounds of the ranks that wait, for each of the first kMostKinds kinds of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

struct Overtaking {
  std::vector<std::size_t> overtaken;    // wait points: one call, of sister groups; ascending
  std::size_t at = SIZE_MAX;             // the wait point that the deviants are in
  std::vector<std::uint32_t> deviants;   // rank indices, ascending
  std::vector<std::uint32_t> witnesses;  // those who came in order; empty: the deviants' own past
  // They never issue the call. False: their programs, of which more is known than what a run
  // showed, come to it later.
  bool left_out = true;
};

inline constexpr std::size_t kMostKinds = 16;

// Of a circle; `points` are those in which its ranks wait.
std::optional<Overtaking> find_overtaking(const Context& context,
                                          const std::vector<std::size_t>& points);

// The finding where it was left out: missing-collective, placed in the first of the groups.
Cause explain_left_out(const Context& context, const Overtaking& overtaking);

}  // namespace lockstep::verify
