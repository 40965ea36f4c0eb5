// Which process of a job this one is, from the environment that its launcher set.
//
// torchrun (RANK, WORLD_SIZE, LOCAL_RANK: docs.pytorch.org/docs/stable/elastic/run.html), Slurm
// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID: srun(1)), Open MPI (OMPI_COMM_WORLD_*), MPICH's Hydra
// (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID). The first in this order whose rank and size are set is
// used: torchrun may run inside Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// Returns a variable's value; nullptr if it is not set.
using Environment = std::function<const char*(const char* name)>;

// The variables of one launcher.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
};
// The launcher whose variables are set; null: none.
const Launcher* find_launcher(const Environment& get);

// The whole text as a number of at least 0; empty if it is not one.
std::optional<int> launcher_number(std::string_view text);

struct LaunchedRank {
  int rank = 0;
  int world_size = 1;
};
// This process's rank; empty without a launcher. Errors: values that are not numbers, a rank that
// is not below the size.
Result<std::optional<LaunchedRank>> launched_rank(const Environment& get);
// Its number among the processes of its machine; empty if no launcher gives one.
std::optional<int> launched_local_rank(const Environment& get);

}  // namespace lockstep
