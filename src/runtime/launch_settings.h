// Which rank a worker is, and where it finds the others: from its options, or from the variables of
// whoever launched it.
//
// Options go over torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT:
// docs.pytorch.org/docs/stable/elastic/run.html) over Slurm (SLURM_PROCID, SLURM_NTASKS,
// SLURM_LOCALID: srun(1)) over MPI (OMPI_COMM_WORLD_*: Open MPI; PMI_RANK, PMI_SIZE,
// MPI_LOCALRANKID: MPICH's Hydra) over a single process. The first launcher whose rank and size are
// set is the one: torchrun may well run below Slurm. Options that contradict it are an error.
#pragma once

#include <functional>
#include <optional>
#include <string>

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

// nullptr where the variable is not set.
using Environment = std::function<const char*(const char* name)>;

// Errors: options that contradict the launcher's variables (both values are named), numbers that
// are none, a rank that is not below the number of ranks, several ranks without a place to meet.
Result<LaunchSettings> find_launch_settings(const LaunchOptions& options, const Environment& get);

}  // namespace lockstep
