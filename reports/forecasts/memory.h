// What `lockstep simulate SCENARIO` says of memory: what each kind of ranks holds at its peak, what
// for, when, and whether its device has that much.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

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

}  // namespace lockstep::reports
