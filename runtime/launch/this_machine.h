// Where lockstep-worker is.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace lockstep::runtime {

// The exit status of a worker that refuses what it is given.
inline constexpr int kWorkerRefusal = 2;

// What the search looks at; passed in so that tests need no environment.
struct WorkerSearch {
  std::string named;    // by LOCKSTEP_WORKER; empty: not set
  std::string program;  // the path of the running lockstep
  std::string path;     // PATH
};
WorkerSearch worker_search_of_this_process();

// LOCKSTEP_WORKER where it is set, else the one beside lockstep, else the first in PATH.
// Errors: none there, or the named one is no program.
Result<std::string> find_worker(const WorkerSearch& search);

// How many GPUs there are, for what can be said before a worker is started. What CUDA itself finds
// is the worker's to say.

// What the count looks at; passed in so that tests need no GPU.
struct GpuSearch {
  std::string devices = "/dev";        // nvidia0, nvidia1, …
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES; nothing: not set
};
GpuSearch gpu_search_of_this_process();

// NVIDIA's GPUs that a worker may use. Nothing where these files do not tell (Jetson, WSL).
std::optional<int> count_gpus(const GpuSearch& search);

}  // namespace lockstep::runtime
