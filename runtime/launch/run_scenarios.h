// Runs scenarios one after another: trains on real processes, proves a hang while it runs, and
// reports.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "reports/exit_status.h"
#include "reports/findings/forms.h"

namespace lockstep::runtime {

// By default each run gets a new folder in this one.
inline constexpr const char* kRunsFolder = "lockstep-runs";

struct RunOptions {
  std::vector<std::string> paths;  // scenario files, or folders that hold them
  std::string output_dir;   // the run's folder; with several, their parent; empty: kRunsFolder
  bool check = false;       // compare with each scenario's "expect:"
  bool reference = false;   // also train in one process, and compare
  bool share_gpus = false;  // ranks on NCCL may share GPUs
  FileNames name_of = [](const std::string& path) { return path; };  // what people read
  reports::ReportOptions report;
};

// Loads and checks everything before anything is started (studies are skipped, with a message),
// then runs each scenario, prints how it went and writes its report, which is also in the run's
// folder. Status: the worst of all. For one run as exit_status() defines it; 3 for a job without
// findings that did not complete; with `check` 0 or 1, for as expected or not; 2 for input that
// cannot be used; 4 for failures. Prints errors.
reports::ExitStatus run_scenarios(const RunOptions& options);

}  // namespace lockstep::runtime
