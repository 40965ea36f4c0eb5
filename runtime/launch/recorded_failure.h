// Turns a recorded failure into a scenario that reproduces it: the scenario's file, and next to it
// a folder of traces with the calls, e.g. job.yaml and job.calls/. The replay is expected to give
// the verdict of the traces.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "reports/exit_status.h"
#include "runtime/replay/program.h"
#include "trace/load.h"

namespace lockstep::runtime {

struct RecordedFailure {
  std::vector<std::string> paths;  // trace files, or folders that hold them
  trace::LoadOptions load;
  std::string output = "replay.yaml";  // the scenario's file
  ProgramOptions program;
  bool force = false;  // replace files that exist
};

// Reads and judges the traces, writes the files and reports them on `stream`. Refuses what a replay
// would not show: wrong numbers, missing ranks, MPI programs. Status: 0 written; 2 for input that
// cannot be read or replayed; 3 if the traces do not say whether anything is wrong; 4 for files
// that cannot be written. Prints errors.
reports::ExitStatus recorded_failure_to_scenario(const RecordedFailure& failure,
                                                 std::ostream& stream);

}  // namespace lockstep::runtime
