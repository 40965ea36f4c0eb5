// The wait-for graph of a run as inline SVG. Ranks that wait for nobody, the culprits, are on the
// left, and a rank that waits is right of those that it waits for. A cycle is drawn as a ring. In a
// narrow window the same stands there as lines.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/findings/figures/wait_picture.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {

// Markup; empty if nobody waits. A chain of ranks that wait one for the other is one node. Of a
// larger graph only the culprits and their neighbours are drawn, and the caption says how many are
// not. O(nodes + edges).
std::string wait_figure(const WaitPicture& picture);

// The layout of a small wait-for graph: a node is left of those that it waits for. The nodes of a
// cycle form a ring; a node that waits for one of them is on that one's side, so that no arrow
// crosses the ring.

struct WaitLayout {
  std::vector<Box> boxes;  // by node
  double width = 0, height = 0;
  bool goes_round = false;  // there is a ring
};

// Edges of mismatched calls do not affect the layout. For a few dozen nodes: O(nodes³ + nodes ·
// edges).
WaitLayout lay_out(std::size_t nodes, const std::vector<WaitEdge>& edges);

}  // namespace lockstep::reports::html
