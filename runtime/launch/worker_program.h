// Where lockstep-worker is.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

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

}  // namespace lockstep
