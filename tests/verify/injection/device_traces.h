// The text traces of a run on devices, as its recorders would have written them.
#pragma once

#include <string>
#include <vector>

#include "tests/verify/injection/devices.h"

namespace lockstep::verify::injection {

enum class Recorder {
  profiler,  // NCCL's profiler plugin: what the device began and completed, no waits
  recorder,  // ours, over NCCL: waits that are over at once, completions, exceptions
  issues,    // a preloaded library: that calls were made
};

// By rank; empty for ranks of which nothing was recorded. `ends`: who was still there at the end
// says how it ended.
std::vector<std::string> device_traces(const Job& job, const DeviceOutcome& outcome,
                                       Recorder recorder, const Recording& recording, bool ends,
                                       Random& random);

}  // namespace lockstep::verify::injection
