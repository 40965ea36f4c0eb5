// Messages whose other side a bounded recorder lost.
//
// The rings of a sender and of a receiver begin at different messages, and no number that both
// record tells which pair (Flight Recorder counts each rank's messages to all peers in one). The
// ends do: what one side saw completed, the other side saw completed or has still open. A channel
// is lined up so that its open calls pair; where one side has more of them, so that the surplus
// pairs with the other side's last completed ones, if these completed after the surplus was issued
// (the other side was looked at a little later); else so that it stays open. Where sizes do not
// agree so, nearby places are tried. What then has no place in the other side's window met a call
// that was lost.
//
// O(events) where a trace with messages lost its beginning; else O(ranks).
#pragma once

#include <vector>

#include "trace/run.h"

namespace lockstep {

// By rank index and call: true for those that met a lost call. Empty where nothing was lost.
std::vector<std::vector<bool>> find_lost_messages(const Run& run);

}  // namespace lockstep
