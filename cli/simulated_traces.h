// A simulated run as traces (docs/trace-format.md): what every rank called, and when each call was
// issued and ended on the simulated clock. `verify`, `derive --against` and others read them.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/simulate_program.h"

namespace lockstep {

// Writes rank_<r>.trace.jsonl for every rank, into a folder that is made where it is not there.
// `run`: what the program was made of. Errors: a folder or a file that cannot be written.
Status write_simulated_traces(const SimulatedProgram& simulated, const Run& run,
                              const std::string& folder);

}  // namespace lockstep
