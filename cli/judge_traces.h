// `lockstep verify PATH…`: recorded runs, read and judged.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "reports/exit_status.h"
#include "trace/load.h"

namespace lockstep {

struct TracesToJudge {
  std::vector<std::string> paths;
  LoadOptions load = {};
  std::string semantics = {};    // "nccl", "gloo" or "mpi"; empty: as recorded
  std::string certificate = {};  // where the proof of a clean run goes; empty: nowhere
};

// Reads the run, judges it and writes the reports and the certificate. Status: by the contract
// (exit_status()); 3 where a clean run has no certificate; 2 for what cannot be read; 4 for what
// cannot be written. Errors are printed.
ExitStatus judge_traces(const TracesToJudge& traces, const ReportOptions& report);

}  // namespace lockstep
