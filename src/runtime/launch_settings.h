// Which rank a worker is, and where it finds the others: from its options, or from the variables of
// whoever launched it.
//
// Options go over the launcher's variables (base/launcher.h; MASTER_ADDR and MASTER_PORT are
// torchrun's) over a single process. Options that contradict the launcher are an error.
#pragma once

#include <optional>
#include <string>

#include "base/launcher.h"
#include "base/result.h"

namespace lockstep {

// What the options say; absent where they say nothing.
struct LaunchOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::string store;   // a file; empty: none
  std::string master;  // HOST:PORT; empty: none
};

struct LaunchSettings {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;    // among the processes of this machine
  std::string launcher;  // "options", "torchrun", "Slurm", "MPI", "a single process"

  // Where the ranks meet: a file, or (where it is empty) a TCPStore that rank 0 serves.
  std::string store_file;
  std::string master_host;
  int master_port = 0;
  bool store_is_served = false;  // torchrun's agent serves it already …
  int attempt = 0;               // … and has started the ranks so often before
};

// Errors: options that contradict the launcher's variables (both values are named), numbers that
// are none, a rank that is not below the number of ranks, several ranks without a place to meet.
Result<LaunchSettings> find_launch_settings(const LaunchOptions& options, const Environment& get);

}  // namespace lockstep
