// The wait-for graph of a run as inline SVG: ranks that wait on the left, whom they wait for to the
// right of them, and at the far right who waits for nobody; ranks that hold each other up as a
// ring.
#pragma once

#include <string>

#include "reports/findings/figures/wait_picture.h"

namespace lockstep::html {

// Markup; empty where nobody waits. Of a larger graph the culprits and those next to them are
// drawn, and the caption says how many are not. O(nodes + edges).
std::string wait_figure(const WaitPicture& picture);

}  // namespace lockstep::html
