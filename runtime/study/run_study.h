// Runs a study: every strategy with every remedy, on real processes, several times each.
#pragma once

#include <string>

#include "reports/exit_status.h"
#include "runtime/job/study.h"

namespace lockstep::runtime {

// Runs and measures in `folder`, which is made where it does not exist, with a folder for each
// combination; prints the table and writes it to study.json and study.md there. A combination that
// hangs is a row of it. After the user's signal: the table so far. `quiet`: nothing is printed but
// errors. Status: 0 measured; 2 there is no worker, or the folder cannot be made; 4 what failed;
// 128 + the signal after one. Errors are printed.
reports::ExitStatus run_study(const Study& study, const std::string& folder, bool quiet);

}  // namespace lockstep::runtime
