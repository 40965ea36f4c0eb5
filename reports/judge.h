// Recorded runs and derivations: read, judged, and reported as the user wants it.
#pragma once

#include <string>
#include <vector>

#include "reports/exit_status.h"
#include "reports/findings/forms.h"
#include "trace/load.h"

namespace lockstep::reports {

struct TracesToJudge {
  std::vector<std::string> paths;
  trace::LoadOptions load = {};
  std::string semantics = {};    // "nccl", "gloo" or "mpi"; empty: as recorded
  std::string certificate = {};  // where the proof of a clean run goes; empty: nowhere
};

// Reads the run, judges it and writes the reports and the certificate. Status: by the contract
// (exit_status()); 3 where a clean run has no certificate; 2 for what cannot be read; 4 for what
// cannot be written. Errors are printed.
ExitStatus judge_traces(const TracesToJudge& traces, const ReportOptions& report);

// Reads the derivation in `folder`, decides for every mix of conditions at once, prints the verdict
// with its counterexample, and writes the certificate to `certificate` (empty: none), which only a
// safe program has, and the --output files. Status: 0 safe, 1 it diverges, may deadlock or raises,
// 3 inconclusive; 2 where the folder cannot be used.
ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& report);

}  // namespace lockstep::reports
