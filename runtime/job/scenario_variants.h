// The job that a scenario's distributed one is measured against: one process that trains on the
// union of all ranks' batches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// The scenario of that process: manual averaging, no deliberate fault, the same remedy and
// precision. Each rank's batch becomes a micro-batch (TrainLoop's `data_of`), so that
// BatchNorm and the losses see what the ranks saw. Errors: losses that need all ranks' features at
// once; batches that the ranks share out as they go; dropout; an average over the
// ranks with images alone.
Result<Scenario> reference_of(const Scenario& scenario);

// The remedies that a scenario could take, as changes of its file.

struct RemedyChoice {
  std::string name;    // "dummy images"
  std::string change;  // for people: what to write: "remedy: dummy-image"
  std::string text;    // the scenario with it
};

// Those that this scenario's other keys allow and that it does not have already. `text`: the
// scenario's own, `file` names it in errors. Errors: YAML that does not parse.
Result<std::vector<RemedyChoice>> remedy_choices(const std::string& text, const std::string& file);

// The scenario that a simulation is made of: the job as it trains, evaluates and saves checkpoints.

struct SimulatedChange {
  std::optional<int> ranks;
  std::optional<int> steps;
};

// The scenario as text, with as many ranks and steps as asked for: nothing is watched, expected or
// studied, and the job begins with its first step, whatever checkpoints there are. Errors: as
// parse_scenario.
Result<std::string> simulated_scenario(const std::string& text, const std::string& file,
                                       const SimulatedChange& change);

}  // namespace lockstep::runtime
