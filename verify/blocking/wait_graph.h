// The wait-for graph at the end of a replay, and who is to blame in it.
//
// A rank waits for every member of its call's group that has not issued it, or whose device has not
// come to it. Ranks that others wait for and that wait for nobody are roots: the culprits. Where
// there is no root there is a cycle, and the ranks in it hold each other up; or a call that has
// everybody it needs and still does not complete. Each cause takes along every rank that waits for
// it, directly or through others: its victims.
//
// Cost: O(waiting ranks + missing members); ranks that wait in one call share one vertex.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/replay/replay.h"

namespace lockstep::verify {

struct WaitCause {
  std::vector<std::uint32_t> roots;  // rank indices, ascending: one rank, or the ranks of a circle
  bool circle = false;
  // The wait point that has everybody and does not complete; its ranks are the roots.
  std::size_t stalled = SIZE_MAX;
  std::vector<std::uint32_t> victims;  // rank indices, ascending, without the roots
  std::vector<std::size_t> points;     // wait points in which roots or victims wait, ascending
  bool stuck = false;                  // proven: none of them can ever go on
};

// Independent causes first to last by their lowest root; roots of one circle are one cause, and
// roots in the same state that hold up the same calls are one cause.
std::vector<WaitCause> wait_causes(const ReplayResult& where);

}  // namespace lockstep::verify
