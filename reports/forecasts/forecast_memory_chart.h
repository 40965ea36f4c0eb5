// What the ranks of a simulated job hold over time, as stacked areas of an HTML page.
#pragma once

#include <string>
#include <vector>

#include "sim/forecast/memory_timeline.h"
#include "sim/machine/machine.h"

namespace lockstep {

// A chart for each of the kinds of ranks that need most, with a table of their peaks; markup.
// Within a stretch of work its peak is drawn. Empty where nothing was counted.
std::string memory_charts(const std::vector<sim::MemoryTimeline>& timelines,
                          const sim::Machine& machine);

}  // namespace lockstep
