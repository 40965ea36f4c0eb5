// What the ranks of a simulated job hold over time, as stacked areas of an HTML page.
#pragma once

#include <string>
#include <vector>

#include "reports/findings/timeline_report.h"
#include "reports/forecasts/memory.h"
#include "sim/forecast/memory_timeline.h"
#include "sim/machine/machine.h"

namespace lockstep::reports {

// A chart for each of the kinds of ranks that need most, with a table of their peaks; markup.
// Within a stretch of work its peak is drawn. Empty where nothing was counted.
std::string memory_charts(const std::vector<sim::MemoryTimeline>& timelines,
                          const sim::Machine& machine);

// What each kind of ranks holds over time, as counters of a timeline.

// For each class of ranks, in the process of its first one: the bytes of every category that is
// ever held, and of all together, which is a counter of its own since viewers stack the series of
// one. In a stretch of work a rank is shown with what it holds at the stretch's peak; behind it
// with what it ended with. On the simulated clock. None where memory was not counted.
std::vector<TimelineCounter> memory_counters(const sim::MemoryForecast& memory);

}  // namespace lockstep::reports
