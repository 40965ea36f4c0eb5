// The scenario that a simulation is made of: the job as it trains, and nothing beside.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace lockstep {

struct SimulatedChange {
  std::optional<int> ranks;
  std::optional<int> steps;
};

// The scenario as text, with as many ranks and steps as asked for: nothing is watched, evaluated,
// expected or studied, and no checkpoints are saved or gone on from. Errors: as parse_scenario.
Result<std::string> simulated_scenario(const std::string& text, const std::string& file,
                                       const SimulatedChange& change);

}  // namespace lockstep
