// What a study measures of each combination of a strategy and a remedy, from real runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/launch/job_runner.h"
#include "trace/run.h"

namespace lockstep {

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

// A run against the one process that does the same, and against the one that needs no remedy.
struct Accuracy {
  // Of the gradients that the optimiser gets, against the same remedy in one process: the largest
  // relative error before rounding has grown; where they part, that of the tensor that parts first.
  std::optional<double> gradient_error;
  std::optional<std::string> parted;  // that tensor
  // Where the training ended, against one process without remedy: the distance of the parameters as
  // a share of the way that they went, of BatchNorm's running statistics and of the held-out
  // images' embeddings as a share of their size.
  std::optional<double> image_drift, text_drift, batch_norm_drift, feature_drift;
};

struct Watched {
  const Run* run = nullptr;
  const RunFigures* figures = nullptr;
};

// `same`: one process with the remedy; `plain`: one process without. All watched in every step.
Accuracy accuracy_of(const Watched& run, const Watched& same, const Watched& plain);

// Of repeated measurements; at least one.
struct Spread {
  double median = 0, low = 0, high = 0;
};
std::optional<Spread> spread_of(std::vector<double> values);

// One row of a study's table.
struct Combination {
  std::string strategy, remedy;           // an empty remedy: no image is missing
  std::optional<std::string> impossible;  // why it is no job; nothing else is set then
  std::string end;                   // of the first run that did not complete, else "completed"
  bool completed = false;            // all runs
  std::optional<Accuracy> accuracy;  // where a watched run and its references completed
  std::size_t repeats = 0;           // timed runs
  std::optional<Spread> step_ms, bytes_per_step, peak_bytes, loss, recall_at_1;
};

// `runs`: the timed ones; at least one.
void add_runs(const std::vector<RunFigures>& runs, Combination& to);

}  // namespace lockstep
