// The program that a scenario with the strategy `replay` names.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "trace/run.h"

namespace lockstep::runtime {

// The folder of the calls: as `replay` says, from the folder of the scenario's file.
std::string replay_folder(const Scenario& scenario);

// Reads and checks it: all that would keep the ranks from replaying it is said here.
// Errors: load_run's, replay_program's and check_tensors', over NCCL find_nccl_refusal's, and
// another number of ranks than the scenario's; a folder in which too much is written
// (kMaxReplayFolderBytes).
Result<trace::Run> load_replay_program(const Scenario& scenario);
inline constexpr std::uint64_t kMaxReplayFolderBytes = std::uint64_t{1} << 28U;

// The scenario file of a replay.

struct ReplayScenario {
  std::string name;
  std::string description;
  int ranks = 1;
  std::string trace;  // the folder of the calls, as seen from the scenario's
  Scenario::Expect expect;
};

// As YAML, with a comment that says how it came about. Parses as the scenario that it says.
std::string replay_scenario_text(const ReplayScenario& scenario);

}  // namespace lockstep::runtime
