// How long calls took on the device of a rank.
#pragma once

#include <vector>

#include "trace/run.h"

namespace lockstep::trace {

// By call of the rank: how long its device was in it, its wait for the others included, from its
// events or, where a source records no more, from RankTrace::device_times. kNoTime: not recorded;
// 0: a clock was set back; INT64_MAX: the times are too far apart for Nanos. O(calls + events).
std::vector<Nanos> device_times(const RankTrace& trace);

}  // namespace lockstep::trace
