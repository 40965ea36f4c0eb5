// One try of a batch size: a few steps of a scenario in a process of its own, whose memory the
// system measures and whose death costs nothing but the try.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

struct ProbeOptions {
  int batch_size = 1;
  int steps = 3;
  std::int64_t limit_bytes = 0;  // of resident memory: a process that passes it is ended
};

struct ProbeResult {
  enum class Outcome {
    fits,
    over_limit,     // it passed the limit, and was ended
    out_of_memory,  // an allocation was refused
    killed,         // by a signal that was not ours: the system's, out of memory
    failed,         // for another reason, which `why` says
  } outcome = Outcome::failed;
  std::int64_t peak_bytes = 0;  // of resident memory, as the system counted it (wait4)
  double samples_per_s = 0;     // of the steps behind the first
  std::string why;
};

// Trains `scenario` as a job of one rank: with a pipeline or fsdp that is the whole model on one.
// Forks: no thread of Torch may run in the caller.
ProbeResult probe_batch_size(const Scenario& scenario, const ProbeOptions& options);

// What is free on this machine and, where there is one, in this process's control group (bytes).
std::int64_t free_memory_bytes();
// As much of it as we take; the rest is left to others.
inline constexpr double kOfFreeMemory = 0.9;

}  // namespace lockstep::runtime
