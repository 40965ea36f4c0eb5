// Where the nodes of a small wait-for graph stand: who waits left of whom they wait for. Ranks that
// hold each other up stand in a ring, and who waits for one of a ring on that one's side of it, so
// that no arrow crosses the ring.
#pragma once

#include <cstddef>
#include <vector>

#include "reports/findings/figures/wait_picture.h"
#include "reports/html/svg.h"

namespace lockstep::html {

struct WaitLayout {
  std::vector<Box> boxes;  // by node
  double width = 0, height = 0;
  bool goes_round = false;  // there is a ring
};

// Edges of mismatched calls place nothing. Meant for some dozen nodes: O(nodes³ + nodes · edges).
WaitLayout lay_out(std::size_t nodes, const std::vector<WaitEdge>& edges);

}  // namespace lockstep::html
