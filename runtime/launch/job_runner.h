// Runs one scenario on real processes: starts a worker for each rank, follows and judges the traces
// while it runs, ends it as soon as a hang is proven, and judges the complete traces.
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
#include "runtime/launch/run_folder.h"
#include "trace/run.h"
#include "verify/compare_runs.h"
#include "verify/report.h"

namespace lockstep::runtime {

struct JobOptions {
  std::string worker;             // the worker program, called as docs/scenarios.md describes
  std::string folder;             // the run's folder; the caller creates it
  std::vector<std::string> more;  // further options for the worker
  std::chrono::milliseconds poll{50};
  std::chrono::milliseconds grace{2000};  // between SIGTERM and SIGKILL
  // The ranks on CPUs are forked from one worker, which starts them sooner: it is lockstep-worker
  // itself, and not a program of the user that wants to be called once for each rank.
  bool fork_ranks = false;
};

struct WorkerOutcome {
  int rank = 0;
  ProcessEnd end;
  bool ended_by_us = false;  // it was still running when we ended the job
  std::string log;           // the file with its standard output and standard error
  std::optional<WorkerNumbers> numbers;
  std::string hung_in;  // "poll < … < lockstep::TrainLoop::run", from its stack; empty: no stack
};

enum class JobEnd {
  completed,    // every worker exited with 0
  stopped,      // a hang was proven, and we ended the job
  failed,       // workers ended with an error, and the others with them or because of it
  timed_out,    // limits.total_s passed
  interrupted,  // by a signal to us
};

struct JobOutcome {
  JobEnd end = JobEnd::completed;
  std::vector<WorkerOutcome> workers;  // by rank
  trace::Run run;
  verify::Report report;            // of the complete traces
  std::optional<double> proof_s;    // from the last movement to the proof; only if stopped
  double wall_s = 0;                // from the start of the first worker to the end of the last
  int interrupted_by = 0;           // the signal
  std::int64_t steps = 0;           // finished by every rank when the job ended
  std::int64_t planned_steps = 0;   // of the scenario; 0: none
  double quiet_s = 0;               // how long nothing had moved when the job was ended
  bool times_mean_nothing = false;  // because ranks shared GPUs
};

// Called at every poll while workers run.
using OnProgress = std::function<void(const JobProgress&, double elapsed_s)>;

inline constexpr int kRanksOnOneMachine = 256;
// `gpus`: the number of GPUs on this machine, if known. Errors: the job has more than
// kRanksOnOneMachine ranks; it names a file that is not there; it uses NCCL and there is no GPU, or
// too few for ranks that do not share them.
Status check_startable(const Scenario& scenario, std::optional<int> gpus);

// Runs the job. Ends it when
//
//   - a hang is proven;
//   - a limit is reached, or a signal arrives;
//   - a worker fails before it began;
//   - a worker failed and the others do not move any more.
//
// A job that still moves when a limit or a signal ends it is frozen first, so that its traces say
// where every rank was, end with `killed`, and show no effects of ending it. When this returns, no
// worker runs, and their shared memory is removed. Errors: a worker cannot be started, refuses the
// scenario, or fails before it began; no worker left a trace.
Result<JobOutcome> run_job(const Scenario& scenario, const JobOptions& options,
                           Interrupts& interrupts, const OnProgress& on_progress);

// A finished job compared with one process that trains on the batches of all its ranks.

struct ReferenceRun {
  std::string why_none;  // why there is no reference; everything else is empty then
  std::string folder;    // the process's traces and log
  verify::Comparison comparison;
  // Nothing if one of the two did not record the loss of its last step.
  std::optional<verify::FinalLoss> loss;
};

// Trains the reference (runtime/job/scenario_variants.h) in options.folder + "/reference". Errors:
// those of run_job; the reference did not finish; the folder cannot be created.
Result<ReferenceRun> run_reference(const Scenario& scenario, const JobOutcome& outcome,
                                   JobOptions options, Interrupts& interrupts);

}  // namespace lockstep::runtime
