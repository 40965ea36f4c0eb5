// A recorded failure as a scenario that makes it happen again: the scenario's file, and beside it
// the calls as a folder of traces, job.yaml and job.calls/. What is expected of the replay is the
// verdict on the traces.
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
  bool force = false;  // replaces files that are there already
};

// Reads and judges the traces, writes the files and tells `said` what they are. Refuses what a
// replay would not show: wrong numbers, missing ranks, MPI programs. Status: 0 written; 2 for what
// cannot be read or replayed; 3 where the traces do not say whether anything is wrong; 4 for what
// cannot be written. Errors are printed.
reports::ExitStatus recorded_failure_to_scenario(const RecordedFailure& failure,
                                                 std::ostream& said);

}  // namespace lockstep::runtime
