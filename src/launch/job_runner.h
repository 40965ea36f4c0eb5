// Runs one scenario on real processes: a worker for each rank, followed, judged while it runs,
// ended as soon as it provably cannot go on, and judged again from the complete traces.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "job/scenario.h"
#include "launch/interrupts.h"
#include "launch/live_verifier.h"
#include "launch/process.h"
#include "launch/worker_result.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep {

struct JobOptions {
  std::string worker;             // the worker program; called as docs/scenarios.md says
  std::string folder;             // of this run; made by run_job's caller
  std::vector<std::string> more;  // further options of the worker
  std::chrono::milliseconds poll{50};
  std::chrono::milliseconds grace{3000};  // between SIGTERM and SIGKILL
};

struct WorkerOutcome {
  int rank = 0;
  ProcessEnd end;
  bool ended_by_us = false;  // it still ran when the job was ended
  std::string log;           // its standard output and standard error
  std::optional<WorkerNumbers> numbers;
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
  Run run;
  Report report;                  // of the complete traces
  std::optional<double> proof_s;  // from the last movement to the proof, where it was stopped
  double wall_s = 0;              // from the first worker's start to the last one's end
  int interrupted_by = 0;         // the signal
};

// Called at every poll while workers run.
using OnProgress = std::function<void(const JobProgress&, double elapsed_s)>;

inline constexpr int kRanksOnOneMachine = 256;
// Errors: the job has more ranks than that.
Status check_startable(const Scenario& scenario);

// Errors: check_startable's, a worker cannot be started, or no worker left a trace. No worker
// outlives the call.
Result<JobOutcome> run_job(const Scenario& scenario, const JobOptions& options,
                           Interrupts& interrupts, const OnProgress& on_progress);

}  // namespace lockstep
