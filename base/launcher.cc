#include "base/launcher.h"

#include <array>
#include <string>

#include "base/numbers.h"
#include "base/text.h"

namespace lockstep {
namespace {

// In the order of the search: torchrun may run inside Slurm.
constexpr std::array<Launcher, 4> kLaunchers = {{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
}};

}  // namespace

const Launcher* find_launcher(const Environment& get) {
  for (const Launcher& launcher : kLaunchers) {
    if (get(launcher.rank) != nullptr && get(launcher.world_size) != nullptr) return &launcher;
  }
  return nullptr;
}

std::optional<int> launcher_number(std::string_view text) {
  const std::optional<int> value = parse_number<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

Result<std::optional<LaunchedRank>> launched_rank(const Environment& get) {
  const Launcher* const launcher = find_launcher(get);
  if (launcher == nullptr) return std::optional<LaunchedRank>();
  const std::string rank_text = get(launcher->rank);
  const std::string size_text = get(launcher->world_size);
  const std::optional<int> rank = launcher_number(rank_text);
  const std::optional<int> size = launcher_number(size_text);
  if (!rank || !size || *rank >= *size) {
    return Error{std::string(launcher->rank) + " is " + printable(rank_text) + " and " +
                     launcher->world_size + " is " + printable(size_text),
                 {},
                 "a rank counts from 0 and is below the number of ranks"};
  }
  return std::optional<LaunchedRank>(LaunchedRank{*rank, *size});
}

std::optional<int> launched_local_rank(const Environment& get) {
  const Launcher* const launcher = find_launcher(get);
  const char* const text = launcher != nullptr ? get(launcher->local_rank) : nullptr;
  return text != nullptr ? launcher_number(text) : std::nullopt;
}

}  // namespace lockstep
