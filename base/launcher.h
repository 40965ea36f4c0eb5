// Which process of a job this one is, as whoever launched it says in the environment.
//
// torchrun (RANK, WORLD_SIZE, LOCAL_RANK: docs.pytorch.org/docs/stable/elastic/run.html), Slurm
// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID: srun(1)), Open MPI (OMPI_COMM_WORLD_*), MPICH's Hydra
// (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID). The first whose rank and size are set is the one: torchrun
// may well run below Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// nullptr where the variable is not set.
using Environment = std::function<const char*(const char* name)>;

// The variables of one launcher.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
};
// Null: none of them.
const Launcher* find_launcher(const Environment& get);

// The whole text as a number from 0 up.
std::optional<int> launcher_number(std::string_view text);

struct LaunchedRank {
  int rank = 0;
  int world_size = 1;
};
// Nothing where no launcher says. Errors: numbers that are none, a rank that is not below the size.
Result<std::optional<LaunchedRank>> launched_rank(const Environment& get);

}  // namespace lockstep
