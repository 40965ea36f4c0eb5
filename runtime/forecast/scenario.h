// From a scenario's file to its job on a machine's simulated clock (sim/forecast/scenario.h), by a
// worker that looks at its ranks.
#pragma once

#include <optional>
#include <string>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"
#include "sim/forecast/scenario.h"
#include "sim/machine/machine.h"

namespace lockstep::runtime {

// The job in the scenario file `path`, changed, in a file of its own in `folder`: what
// derive_ranks() takes. Errors: a file that cannot be read or written, what is wrong with the
// scenario as it stands or as it was changed, a job that cannot be derived.
Result<Scenario> scenario_to_derive(const std::string& path, const SimulatedChange& change,
                                    const std::string& folder);

struct ForecastOptions {
  std::string folder;           // exists; takes the changed scenario and what is derived of it
  std::optional<bool> on_meta;  // nothing: as it suits the job
  bool time_work = false;       // on this machine, and not only priced for the one that is given
  bool quiet = false;
};

// Derives and times it, by the worker that this program finds. Errors: scenario_to_derive()'s,
// derive_ranks() and sim::time_scenario()'s; no worker.
Result<sim::TimedScenario> forecast_scenario(const std::string& path, const SimulatedChange& change,
                                             const sim::Machine& machine,
                                             const ForecastOptions& options,
                                             Interrupts& interrupts);

}  // namespace lockstep::runtime
