// One rank of a job, from the scenario to the files it leaves.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "runtime/job/launch_settings.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

class Recorder;

// Exit statuses of a rank, in addition to kExitGaveUp (runtime/record/watchdog.h).
inline constexpr int kExitFinished = 0;
inline constexpr int kExitException = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitFailed = 4;  // a file could not be read or written

// Prints the error on standard error. Returns `status`.
int fail_with(const Error& error, int status = kExitUsage);

struct WorkerOptions {
  int rank = 0;
  int world_size = 1;
  std::string store;  // the file through which the ranks find each other; must not exist before
  // Where `store` is empty: the TCPStore through which they do (launch_settings.h).
  std::string master_host;
  int master_port = 0;
  bool store_is_served = false;
  int attempt = 0;
  std::string device;                    // "cpu", "cuda"; empty: what the scenario's backend needs
  int local_rank = 0;                    // among the ranks of this machine
  bool share_gpus = false;               // of several NCCL ranks
  QueuedCalls queued = QueuedCalls::no;  // for tests: on the CPU (runtime/device/queued_calls.h)
  bool reference = false;                // alone, with the batches of all the scenario's ranks
                                         // (runtime/job/scenario_variants.h)
  std::string trace;                     // folder for rank_<r>.ring and rank_<r>.result.json
  pid_t parent = 0;                      // from prepare_process_for_watchdog()
};

// What cannot be run, said before anything starts: another number of ranks than the scenario's,
// files that are not there, what a GPU does not do.
Status check_runnable(const Scenario& scenario, const WorkerOptions& options);

// Runs the rank to its end and returns its exit status. Does not return where the watchdog ends the
// process, nor after an exception in training: then it exits with kExitException without tearing
// down connections that may never be let go.
int run_worker(const Scenario& scenario, const WorkerOptions& options);

// Ends the trace with what training threw, and says it on standard error.
void record_exception(Recorder& recorder, int rank, const std::string& message);

// "2.15.0".
std::string torch_version();

}  // namespace lockstep::runtime
