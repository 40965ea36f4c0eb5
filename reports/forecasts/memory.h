// What `lockstep simulate SCENARIO` says of memory: what each kind of ranks holds at its peak, what
// for, when, and whether its device has that much.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/forecast/memory_timeline.h"
#include "sim/machine/machine.h"
#include "trace/run.h"

namespace lockstep {

struct MemoryForecast {
  std::vector<sim::MemoryTimeline> classes;  // none: memory was not counted
  // Of each class: what its peak comes before, in words: "all_reduce(image_proj.weight)".
  std::vector<std::string> peaks_before;
};

// `run` is the one that the timelines were made of.
MemoryForecast memory_forecast(std::vector<sim::MemoryTimeline> timelines, const Run& run);

// Whether every rank's device has what it needs; true where the machine does not say how much there
// is, or nothing was counted.
bool fits(const MemoryForecast& memory, const sim::Machine& machine);

// {"needed_bytes": …, "per_device_bytes": …, "classes": [{"ranks": "0-3", "peak": …, …}]}; null
// where nothing was counted.
nlohmann::ordered_json memory_json(const MemoryForecast& memory, const sim::Machine& machine);

// Lines of at most 80 columns: the composition of the peak of the ranks that need most, the other
// kinds' needs, and by how much it does not fit. Empty where nothing was counted.
std::string memory_text(const MemoryForecast& memory, const sim::Machine& machine);

// "2.1 GB of 80 GB", for one line among others; nothing counted: empty.
std::string memory_headline(const MemoryForecast& memory, const sim::Machine& machine);

// The assumption that these figures rest on.
std::string memory_assumption(const sim::Machine& machine);

}  // namespace lockstep
