// What `lockstep simulate SCENARIO` says of memory: what each kind of ranks holds at its peak and
// over time, what for, when, and whether its device has that much.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "reports/findings/timeline_report.h"
#include "sim/forecast/memory_timeline.h"
#include "sim/machine/machine.h"

namespace lockstep::reports {

// {"needed_bytes": …, "per_device_bytes": …, "classes": [{"ranks": "0-3", "peak": …, …}]}; null
// where nothing was counted.
nlohmann::ordered_json memory_json(const sim::MemoryForecast& memory, const sim::Machine& machine);

// Lines of at most 80 columns: the composition of the peak of the ranks that need most, the other
// kinds' needs, and by how much it does not fit. Empty where nothing was counted.
std::string memory_text(const sim::MemoryForecast& memory, const sim::Machine& machine);

// "2.1 GB of 80 GB", for one line among others; nothing counted: empty.
std::string memory_headline(const sim::MemoryForecast& memory, const sim::Machine& machine);

// The assumption that these figures rest on.
std::string memory_assumption(const sim::Machine& machine);

// What the ranks of a simulated job hold over time, as stacked areas of an HTML page.
//
// A chart for each of the kinds of ranks that need most, with a table of their peaks; markup.
// Within a stretch of work its peak is drawn. Empty where nothing was counted.
std::string memory_charts(const std::vector<sim::MemoryTimeline>& timelines,
                          const sim::Machine& machine);

// What each kind of ranks holds over time, as counters of a timeline.
//
// For each class of ranks, in the process of its first one: the bytes of every category that is
// ever held, and of all together, which is a counter of its own since viewers stack the series of
// one. In a stretch of work a rank is shown with what it holds at the stretch's peak; behind it
// with what it ended with. On the simulated clock. None where memory was not counted.
std::vector<TimelineCounter> memory_counters(const sim::MemoryForecast& memory);

}  // namespace lockstep::reports
