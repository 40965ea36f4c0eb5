// Variants of a scenario. First the reference of a distributed job: one process that trains on the
// union of all ranks' batches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// The scenario of that process: manual averaging, no deliberate fault, the same remedy and
// precision. Each rank's batch becomes a micro-batch (TrainLoop's `data_of`), so BatchNorm and the
// losses see what the ranks saw. Errors: losses that need the features of all ranks at once;
// batches that are balanced at run time; dropout; an average over the ranks with images only.
Result<Scenario> reference_of(const Scenario& scenario);

// The remedies that a scenario could use, as changes of its file.

struct RemedyChoice {
  std::string name;    // "dummy images"
  std::string change;  // for people: what to write, "remedy: dummy-image"
  std::string text;    // the changed scenario
};

// The remedies that the scenario's other keys allow and that it does not use already. `text` is the
// scenario, `file` names it in errors. Errors: YAML that does not parse.
Result<std::vector<RemedyChoice>> remedy_choices(const std::string& text, const std::string& file);

// The scenario for a simulation: the job as it trains, evaluates and saves checkpoints.

struct SimulatedChange {
  std::optional<int> ranks;
  std::optional<int> steps;
};

// The scenario as text with the given numbers of ranks and steps, without "watch", "expect" and
// "study". It starts at step 0, whatever checkpoints exist. Errors: those of parse_scenario.
Result<std::string> simulated_scenario(const std::string& text, const std::string& file,
                                       const SimulatedChange& change);

}  // namespace lockstep::runtime
