// What each kind of ranks holds over time, as counters of a timeline.
#pragma once

#include <vector>

#include "reports/findings/timeline_report.h"
#include "reports/forecasts/memory.h"

namespace lockstep {

// For each class of ranks, in the process of its first one: the bytes of every category that is
// ever held, and of all together, which is a counter of its own since viewers stack the series of
// one. In a stretch of work a rank is shown with what it holds at the stretch's peak; behind it
// with what it ended with. On the simulated clock. None where memory was not counted.
std::vector<TimelineCounter> memory_counters(const MemoryForecast& memory);

}  // namespace lockstep
