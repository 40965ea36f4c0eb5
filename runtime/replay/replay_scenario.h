// Loads the program of a scenario with the key `replay`, and writes such scenarios.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "trace/run.h"

namespace lockstep::runtime {

// Reads the program from the folder that `replay` names, relative to the scenario's file, and
// checks everything that would keep the ranks from replaying it. Errors: those of load_run,
// replay_program and check_tensors, over NCCL those of find_nccl_refusal; another number of ranks
// than the scenario's; a folder larger than kMaxReplayFolderBytes.
Result<trace::Run> load_replay_program(const Scenario& scenario);
inline constexpr std::uint64_t kMaxReplayFolderBytes = std::uint64_t{1} << 28U;

// The scenario file of a replay.

struct ReplayScenario {
  std::string name;
  std::string description;
  int ranks = 1;
  std::string trace;  // the folder of the calls, relative to the scenario's
  Scenario::Expect expect;
};

// The scenario as YAML, with a comment about its origin.
std::string replay_scenario_text(const ReplayScenario& scenario);

}  // namespace lockstep::runtime
