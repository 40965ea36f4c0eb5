// What a study measures of each combination of a strategy and a remedy, from real runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/studies/study_table.h"
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

RunFigures figures_of(const JobOutcome& outcome);

struct Watched {
  const trace::Run* run = nullptr;
  const RunFigures* figures = nullptr;
};

// `same`: one process with the remedy; `plain`: one process without. All watched in every step.
reports::Accuracy accuracy_of(const Watched& run, const Watched& same, const Watched& plain);

// Nothing of no values.
std::optional<reports::Spread> spread_of(std::vector<double> values);

// `runs`: the timed ones; at least one.
void add_runs(const std::vector<RunFigures>& runs, reports::Combination& to);

}  // namespace lockstep::runtime
