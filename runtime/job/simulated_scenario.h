// The scenario that a simulation is made of: the job as it trains, evaluates and saves checkpoints.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace lockstep {

struct SimulatedChange {
  std::optional<int> ranks;
  std::optional<int> steps;
};

// The scenario as text, with as many ranks and steps as asked for: nothing is watched, expected or
// studied, and the job begins with its first step, whatever checkpoints there are. Errors: as
// parse_scenario.
Result<std::string> simulated_scenario(const std::string& text, const std::string& file,
                                       const SimulatedChange& change);

}  // namespace lockstep
