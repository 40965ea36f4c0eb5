// What this machine has: the lockstep-worker program, and GPUs.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace lockstep::runtime {

// The exit status of a worker that refuses its input.
inline constexpr int kWorkerRefusal = 2;

// Where to search; passed in so that tests need no environment.
struct WorkerSearch {
  std::string named;    // LOCKSTEP_WORKER; empty: not set
  std::string program;  // the path of the running lockstep
  std::string path;     // PATH
};
WorkerSearch worker_search_of_this_process();

// LOCKSTEP_WORKER if set, else the one next to lockstep, else the first in PATH. Errors: none is
// found, or LOCKSTEP_WORKER does not name a program.
Result<std::string> find_worker(const WorkerSearch& search);

// The number of GPUs, as far as it is known before a worker starts. Only the worker asks CUDA.

// Where to count; passed in so that tests need no GPU.
struct GpuSearch {
  std::string devices = "/dev";        // nvidia0, nvidia1, …
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES; nothing: not set
};
GpuSearch gpu_search_of_this_process();

// The number of NVIDIA GPUs that a worker may use. Nothing where device files do not show it
// (Jetson, WSL).
std::optional<int> count_gpus(const GpuSearch& search);

}  // namespace lockstep::runtime
