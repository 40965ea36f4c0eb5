// Memory in the result of `lockstep simulate SCENARIO`: what each kind of ranks holds at its peak
// and over time, what for, when, and whether its device has enough.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "reports/findings/timeline_report.h"
#include "sim/forecast/memory_timeline.h"
#include "sim/machine/machine.h"

namespace lockstep::reports {

// {"needed_bytes": …, "per_device_bytes": …, "classes": [{"ranks": "0-3", "peak": …, …}]}; null if
// nothing was counted.
nlohmann::ordered_json memory_json(const sim::MemoryForecast& memory, const sim::Machine& machine);

// Lines of at most `width` columns: the composition of the peak of the ranks that need most, the
// needs of the others, and by how much it does not fit. Empty if nothing was counted.
std::string memory_text(const sim::MemoryForecast& memory, const sim::Machine& machine,
                        std::size_t width = kReportColumns);

// "2.1 GB of 80 GB"; empty if nothing was counted.
std::string memory_headline(const sim::MemoryForecast& memory, const sim::Machine& machine);

// The assumption behind these figures.
std::string memory_assumption(const sim::Machine& machine);

// What the ranks of a simulated job hold over time, as stacked areas of an HTML page: a chart for
// each of the kinds of ranks that need most, and a table of their peaks. Within a segment of work
// the chart shows its peak. Markup; empty if nothing was counted.
std::string memory_charts(const std::vector<sim::MemoryTimeline>& timelines,
                          const sim::Machine& machine);

// What each kind of ranks holds over time, as counters of a timeline.
//
// For each class of ranks, in the process of its first rank: the bytes of every category that it
// ever holds, and their sum, which is a separate counter since viewers stack the series of one.
// During a segment of work a rank is shown with what it holds at the segment's peak, after it with
// what the segment ended with. On the simulated clock. Empty if memory was not counted.
std::vector<TimelineCounter> memory_counters(const sim::MemoryForecast& memory);

}  // namespace lockstep::reports
