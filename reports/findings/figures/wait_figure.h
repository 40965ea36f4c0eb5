// The wait-for graph of a run as inline SVG: ranks that wait on the left, whom they wait for to the
// right of them, and at the far right who waits for nobody; ranks that hold each other up as a
// ring.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/findings/figures/wait_picture.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {

// Markup; empty where nobody waits. Of a larger graph the culprits and those next to them are
// drawn, and the caption says how many are not. O(nodes + edges).
std::string wait_figure(const WaitPicture& picture);

// Where the nodes of a small wait-for graph stand: who waits left of whom they wait for. Ranks that
// hold each other up stand in a ring, and who waits for one of a ring on that one's side of it, so
// that no arrow crosses the ring.

struct WaitLayout {
  std::vector<Box> boxes;  // by node
  double width = 0, height = 0;
  bool goes_round = false;  // there is a ring
};

// Edges of mismatched calls place nothing. Meant for some dozen nodes: O(nodes³ + nodes · edges).
WaitLayout lay_out(std::size_t nodes, const std::vector<WaitEdge>& edges);

}  // namespace lockstep::reports::html
