// Runs a study: every strategy with every remedy, on real processes, several times each.
#pragma once

#include <string>
#include <vector>

#include "reports/exit_status.h"
#include "runtime/job/study.h"

namespace lockstep::runtime {

// Runs and measures in `folder`, which is created if necessary, with a subfolder for each
// combination. Prints the table, and writes it to study.json and study.md. A combination that hangs
// is a row of the table. `outputs`: KIND=PATH or PATH, for the table. After the user's signal: the
// table so far. `quiet`: print only errors. Status: 0 measured; 2 bad outputs, no worker is found,
// or the folder cannot be created; 4 a failure; 128 + the signal. Prints errors.
reports::ExitStatus run_study(const Study& study, const std::string& folder, bool quiet,
                              const std::vector<std::string>& outputs = {});

}  // namespace lockstep::runtime
