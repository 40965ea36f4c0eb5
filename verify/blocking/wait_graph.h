// The wait-for graph at the end of a replay, and who is to blame in it.
//
// A rank waits for every member of its call's group that has not issued the call, or whose device
// has not begun it. A rank that others wait for and that waits for nobody is a root: a culprit.
// Without a root there is a cycle whose ranks hold each other up, or a call that all members issued
// and that does not complete. The ranks that wait for a cause, directly or through others, are its
// victims.
//
//   rank 2 waits for 1, rank 1 waits for 0, rank 0 finished      root 0, victims 1 and 2
//   rank 0 waits for 1, rank 1 for 0, rank 2 for 0               cycle {0, 1}, victim 2
//
// Cost: O(waiting ranks + missing members), because ranks that wait in one call share a vertex.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/replay/replay.h"

namespace lockstep::verify {

struct WaitCause {
  std::vector<std::uint32_t> roots;  // rank indices, ascending
  bool cycle = false;                // the roots form a cycle
  // The wait point that all members issued and that does not complete; its ranks are the roots.
  // SIZE_MAX: none.
  std::size_t stalled = SIZE_MAX;
  std::vector<std::uint32_t> victims;  // rank indices, ascending, without the roots
  std::vector<std::size_t> points;     // wait points in which roots or victims wait, ascending
  bool stuck = false;                  // proven: none of the waiting ranks can ever continue

  std::vector<std::uint32_t> all_ranks() const;  // roots and victims, ascending
};

// The independent causes, sorted by their lowest root. The ranks of one cycle are one cause; so are
// roots in the same state that hold up the same calls.
std::vector<WaitCause> wait_causes(const ReplayResult& where);

}  // namespace lockstep::verify
