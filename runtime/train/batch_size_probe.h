// One try of a batch size: a few steps of a scenario in a separate process. The kernel measures its
// memory, and if it dies only the try is lost.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

struct ProbeOptions {
  int batch_size = 1;
  int steps = 3;
  // The most resident memory: a process that passes it is killed; 0: no limit.
  std::int64_t limit_bytes = 0;
};

struct ProbeResult {
  enum class Outcome {
    fits,
    over_limit,     // it passed the limit and was killed
    out_of_memory,  // an allocation was refused
    killed,         // by a signal that we did not send: the kernel's out-of-memory killer
    failed,         // for another reason: see `why`
  } outcome = Outcome::failed;
  std::int64_t peak_bytes = 0;  // of resident memory, from wait4()
  double samples_per_s = 0;     // without the first step
  std::string why;
};

// Trains `scenario` as a job of one rank; with a pipeline or FSDP that rank holds the whole model.
// Forks: the caller must not have started any Torch thread.
ProbeResult probe_batch_size(const Scenario& scenario, const ProbeOptions& options);

// Free memory in bytes: of this machine or, if less, of this process's cgroup.
std::int64_t free_memory_bytes();
// The share of free memory that we use; the rest is left to other processes.
inline constexpr double kOfFreeMemory = 0.9;

}  // namespace lockstep::runtime
