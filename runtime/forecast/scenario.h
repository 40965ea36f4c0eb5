// Forecasts a scenario: derives its ranks with a worker, and runs the job on a machine's simulated
// clock (sim/forecast/scenario.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"
#include "sim/forecast/scenario.h"
#include "sim/machine/machine.h"

namespace lockstep::runtime {

struct ForecastOptions {
  std::string folder;           // exists; receives the changed scenario and its derivation
  std::optional<bool> on_meta;  // nothing: as it suits the job
  bool time_work = false;       // time the work on this machine instead of only pricing it
  bool quiet = false;
  // Called once no worker runs any more: what follows only computes, and polls no interrupts.
  std::function<void()> computes = [] {};
};

// Derives and simulates it. Which samples ranks read is unknown in the result if `change` names a
// number of ranks. Errors: a file that cannot be read or written, errors of the scenario before or
// after the change, a job that cannot be derived; those of derive_ranks() and sim::time_scenario();
// no worker is found.
Result<sim::TimedScenario> forecast_scenario(const std::string& path, const SimulatedChange& change,
                                             const sim::Machine& machine,
                                             const ForecastOptions& options,
                                             Interrupts& interrupts);

}  // namespace lockstep::runtime
