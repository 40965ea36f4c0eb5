// Runs one scenario on real processes: a worker for each rank, followed, judged while it runs,
// ended as soon as it provably cannot go on, and judged again from the complete traces.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/job/scenario.h"
#include "runtime/launch/live_verifier.h"
#include "runtime/launch/process.h"
#include "runtime/launch/worker_files.h"
#include "trace/run.h"
#include "verify/compare_runs.h"
#include "verify/report.h"

namespace lockstep::runtime {

struct JobOptions {
  std::string worker;             // the worker program; called as docs/scenarios.md says
  std::string folder;             // of this run; made by run_job's caller
  std::vector<std::string> more;  // further options of the worker
  std::chrono::milliseconds poll{50};
  std::chrono::milliseconds grace{2000};  // between SIGTERM and SIGKILL
};

struct WorkerOutcome {
  int rank = 0;
  ProcessEnd end;
  bool ended_by_us = false;  // it still ran when the job was ended
  std::string log;           // its standard output and standard error
  std::optional<WorkerNumbers> numbers;
  std::string
      hung_in;  // "poll < … < lockstep::TrainLoop::run", as its stack tells; empty: no stack
};

enum class JobEnd {
  completed,    // every worker exited with 0
  stopped,      // proven stuck, and ended by us
  failed,       // all workers ended by themselves, not all of them well
  timed_out,    // limits.total_s passed
  interrupted,  // the user's signal
};

struct JobOutcome {
  JobEnd end = JobEnd::completed;
  std::vector<WorkerOutcome> workers;  // by rank
  trace::Run run;
  verify::Report report;            // of the complete traces
  std::optional<double> proof_s;    // from the last movement to the proof, where it was stopped
  double wall_s = 0;                // from the first worker's start to the last one's end
  int interrupted_by = 0;           // the signal
  std::int64_t steps = 0;           // that every rank had finished when the job ended, or was ended
  std::int64_t planned_steps = 0;   // of the scenario; 0: it has none
  double quiet_s = 0;               // for so long nothing had moved when the job was ended
  bool times_mean_nothing = false;  // ranks shared GPUs
};

// Called at every poll while workers run.
using OnProgress = std::function<void(const JobProgress&, double elapsed_s)>;

inline constexpr int kRanksOnOneMachine = 256;
// `gpus`: of this machine; nothing: not known. Errors: the job has more ranks than that; it is for
// NCCL and there is no GPU, or there are too few for its ranks, which do not share them.
Status check_startable(const Scenario& scenario, std::optional<int> gpus);

// Ends the job when it is proven stuck, when a limit is over or a signal comes, and when a worker
// ends badly before it began. A job that was moving when a limit or a signal ended it is frozen
// first: its traces say where everybody was, end with `killed`, and show nothing that ending it
// did. Errors: a worker cannot be started, refused the scenario, or ended badly before it began; no
// worker left a trace. No worker outlives the call, nor what they left in shared memory.
Result<JobOutcome> run_job(const Scenario& scenario, const JobOptions& options,
                           Interrupts& interrupts, const OnProgress& on_progress);

// A finished job beside one process that trains on all of its ranks' batches.

struct ReferenceRun {
  std::string none;    // why there is nothing to compare with; the rest is empty then
  std::string folder;  // with the process's traces and log
  verify::Comparison comparison;
  std::optional<verify::FinalLoss>
      loss;  // nothing where one of the two recorded none of its last step
};

// Trains the reference (runtime/job/scenario_variants.h) in the folder "reference" of the run's,
// options.folder. Errors: as run_job; a reference that did not finish; a folder that cannot be
// made.
Result<ReferenceRun> run_reference(const Scenario& scenario, const JobOutcome& outcome,
                                   JobOptions options, Interrupts& interrupts);

}  // namespace lockstep::runtime
