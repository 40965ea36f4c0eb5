// Runs scenarios one after another: trains on real processes, proves a hang while it runs, and
// reports.
#pragma once

#include <string>
#include <vector>

#include "reports/exit_status.h"
#include "reports/findings/forms.h"

namespace lockstep::runtime {

// Where runs go unless told otherwise: a new folder in this one.
inline constexpr const char* kRunsFolder = "lockstep-runs";

struct RunOptions {
  std::vector<std::string> paths;  // scenario files, or folders that hold them
  std::string output_dir;          // the run's folder; of several: its parent; empty: kRunsFolder
  bool check = false;              // compares with each scenario's "expect:"
  bool reference = false;          // trains the same in one process, too, and compares
  bool share_gpus = false;         // ranks on nccl may share GPUs
  reports::ReportOptions report;
};

// Loads and checks everything before anything is started (studies are left out, and said to be),
// runs it and tells how it went; the report is written as for any run that is judged, and is in the
// run's folder, too. Status: the worst of all; of one run by the contract (exit_status()), 3 where
// a job without findings did not complete, and with `check` 0 or 1, as it went as expected or not;
// 2 for what cannot be used; 4 for what failed. Errors are printed.
reports::ExitStatus run_scenarios(const RunOptions& options);

}  // namespace lockstep::runtime
