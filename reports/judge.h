// Reads recorded runs and derivations, judges them and writes the reports that the user wants.
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
  bool hung = false;             // as VerifyOptions
  std::string certificate = {};  // file for the proof of a clean run; empty: none
};

// Reads the run, judges it and writes the reports and the certificate; prints errors. Returns
// exit_status(); 3 if a clean run gets no certificate; 2 for input that cannot be read; 4 for
// output that cannot be written.
ExitStatus judge_traces(const TracesToJudge& traces, const ReportOptions& report);

// Reads the derivation in `folder` and decides for all mixes of conditions at once. Prints the
// verdict with its counterexample, writes the --output files, and for a safe program the
// certificate (empty: none). Returns 0 if safe; 1 if it diverges, may deadlock or raises an
// exception; 3 if inconclusive; 2 if the folder cannot be used.
ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& report);

}  // namespace lockstep::reports
