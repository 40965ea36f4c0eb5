// A scenario's job on a machine's simulated clock: what `lockstep simulate SCENARIO` says, as
// values.
//
// Deriving the ranks takes a worker and seconds, and knows nothing of machines; timing them takes
// neither. So a job is derived once, and timed on as many machines as are asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "cli/simulate_scenario_result.h"
#include "runtime/forecast/derived_ranks.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"
#include "sim/machine/machine.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "trace/run.h"

namespace lockstep {

// What all ranks of a job compute; one rank's costs may be those of several.
struct RanksCosts {
  std::vector<RankCosts> different;
  std::vector<std::size_t> of_rank;   // into `different`
  std::vector<std::int64_t> samples;  // of each rank in a step

  // Of each rank; valid while this is.
  std::vector<const RankCosts*> pointers() const;
};

struct TimedScenario {
  std::string scenario;  // its name
  Run run;               // the calls of all ranks, with the machine's times between them
  RanksCosts costs;      // that the times are of
  sim::SimulatedProgram simulated;
  std::vector<sim::GroupPlace> places;       // of the program's groups
  std::optional<ScenarioForecast> forecast;  // nothing: the job hangs (simulated_hang() says why)
};

// The job in the scenario file `path`, changed, in a file of its own in `folder`: what
// derive_ranks() takes. Errors: a file that cannot be read or written, what is wrong with the
// scenario as it stands or as it was changed, a job that cannot be derived.
Result<Scenario> scenario_to_derive(const std::string& path, const SimulatedChange& change,
                                    const std::string& folder);

// `derived`: of `scenario`. Needs no worker. Errors: a call that is not simulated, too many events,
// a time that no simulated clock can show.
Result<TimedScenario> time_scenario(const Scenario& scenario, DerivedRanks derived,
                                    const sim::Machine& machine);

// What the job's steps would take if one thing were different: sim/machine/what_if.h. `timed` is of
// this machine, and does not hang. Errors: a call that is not simulated.
Result<std::vector<sim::WhatIf>> what_ifs(const TimedScenario& timed, const sim::Machine& machine);

// The same job with durations that vary: sim/machine/trials.h. Errors: run_trials', the user's
// signal.
Result<TrialsForecast> run_trials(const TimedScenario& timed, const sim::Machine& machine,
                                  const sim::TrialOptions& options, Interrupts& interrupts);

struct ForecastOptions {
  std::string folder;           // exists; takes the changed scenario and what is derived of it
  std::optional<bool> on_meta;  // nothing: as it suits the job
  bool time_work = false;       // on this machine, and not only priced for the one that is given
  bool quiet = false;
};

// All of it, by the worker that this program finds. Errors: those of both above, and derive_ranks';
// no worker.
Result<TimedScenario> forecast_scenario(const std::string& path, const SimulatedChange& change,
                                        const sim::Machine& machine, const ForecastOptions& options,
                                        Interrupts& interrupts);

}  // namespace lockstep
