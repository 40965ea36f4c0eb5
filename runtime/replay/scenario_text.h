// The scenario file of a replay.
#pragma once

#include <string>

#include "runtime/job/scenario.h"

namespace lockstep {

struct ReplayScenario {
  std::string name;
  std::string description;
  int ranks = 1;
  std::string trace;  // the folder of the calls, as seen from the scenario's
  Scenario::Expect expect;
};

// As YAML, with a comment that says how it came about. Parses as the scenario that it says.
std::string replay_scenario_text(const ReplayScenario& scenario);

}  // namespace lockstep
