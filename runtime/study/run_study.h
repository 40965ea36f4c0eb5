// What a study measures of each combination of a strategy and a remedy, from real runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/exit_status.h"
#include "reports/studies/study_table.h"
#include "runtime/job/study.h"
#include "runtime/launch/job_runner.h"
#include "trace/run.h"

namespace lockstep::runtime {

// One run, reduced to numbers.
struct RunFigures {
  bool completed = false;
  std::string end;            // "completed", or what stopped it: "schedule-divergence at step 2"
  double step_ms = 0;         // the slowest rank's median step
  double bytes_per_step = 0;  // that a rank puts into collectives and messages, mean over the ranks
  double peak_bytes = 0;      // the largest rank's resident memory
  std::optional<double> loss;  // of the last step, mean over the ranks
  std::optional<double> recall_at_1;
  std::vector<double> image_sketches;  // WorkerNumbers::Retrieval's
};

// The figures of a job that has ended. O(calls).
RunFigures figures_of(const JobOutcome& outcome);

// Nothing where there are no values.
std::optional<reports::Spread> spread_of(std::vector<double> values);

// `runs`: the timed ones; at least one.
void add_runs(const std::vector<RunFigures>& runs, reports::Combination& to);

// Runs a study: every strategy with every remedy, on real processes, several times each.

// Runs and measures in `folder`, which is created if necessary, with a subfolder for each
// combination. Prints the table, and writes it to study.json and study.md. A combination that hangs
// is a row of the table. `outputs`: KIND=PATH or PATH, for the table. After the user's signal: the
// table so far. `quiet`: print only errors. Status: 0 measured; 2 bad outputs, no worker is found,
// or the folder cannot be created; 4 a failure; 128 + the signal. Prints errors.
reports::ExitStatus run_study(const Study& study, const std::string& folder, bool quiet,
                              const std::vector<std::string>& outputs = {});

}  // namespace lockstep::runtime
