// A scenario's job on a machine's simulated clock: the result of `lockstep simulate SCENARIO`, as
// values.
//
// Deriving the ranks needs a worker and takes seconds, but does not depend on the machine; timing
// them needs neither. So a job is derived once (runtime/forecast/derived_ranks.h) and timed on each
// machine that is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "sim/collectives/nccl_tuning.h"
#include "sim/forecast/forecast.h"
#include "sim/forecast/memory_timeline.h"
#include "sim/forecast/path_summary.h"
#include "sim/forecast/trials.h"
#include "sim/forecast/what_if.h"
#include "sim/machine/machine.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "trace/run.h"
#include "trace/signature.h"
#include "trace/work_costs.h"

namespace lockstep::sim {

// What the ranks of a job call and compute, found by deriving them one by one.
struct DerivedRanks {
  trace::Run run;                       // of the ranks that were derived
  std::vector<trace::RankCosts> costs;  // by index in run.ranks
  std::vector<std::int32_t> traced;     // by rank of the job: the derived rank that represents it
  std::string origin;                   // the worker's version
  bool on_meta = false;
};

// Calls that NCCL carries by one algorithm and protocol, and their range of sizes.
struct CarriedCalls {
  trace::Op op = trace::Op::all_reduce;
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  Bytes least, most;
};

// The forecast of a job: figures, and what their assumptions depend on.
struct ScenarioForecast {
  std::string scenario;  // its name
  Machine machine;
  std::int64_t steps = 0;               // simulated
  std::int64_t samples = 0;             // of all ranks in a step
  std::vector<std::uint32_t> class_of;  // by rank
  Forecast figures;
  std::int64_t checkpoints = 0;  // how many are saved
  Picos checkpoint_time;         // mean time of one; 0 if none is saved
  FlopUse flops;                 // of the measured steps
  double flops_share = 0;        // of the peak
  bool dummies = false;          // samples that the data does not contain are computed, too
  std::int32_t stages = 0;       // of its pipeline: rank r is stage r % stages; 0: it has none
  ForecastPath path;
  std::vector<WhatIf> what_ifs;
  std::optional<TrialsForecast> trials;
  // Calls of different ranks that shared or narrow links slowed down, and the most that one took
  // over what it takes alone.
  std::uint64_t slowed_calls = 0;
  double most_slowed = 1;
  std::vector<CarriedCalls> carried;  // of the simulated ranks; empty without NCCL
  double state_bytes = 0;  // the most that a rank keeps: parameters, gradients, optimizer state
  MemoryForecast memory;
  bool on_meta = false;
  bool timed_work = false;  // the work was measured on this machine
  std::string derived_by;   // the worker's version
};

// What all ranks of a job compute; several ranks may share costs.
struct RanksCosts {
  std::vector<trace::RankCosts> different;
  std::vector<std::size_t> of_rank;   // into `different`
  std::vector<std::int64_t> samples;  // by rank, per step

  // By rank; valid while this object is.
  std::vector<const trace::RankCosts*> pointers() const;
};

// A job with a machine's times.
struct TimedScenario {
  std::string scenario;  // its name
  trace::Run run;        // the calls of all ranks, with the machine's times between them
  RanksCosts costs;      // from which the times are computed
  SimulatedProgram simulated;
  std::vector<GroupLayout> layouts;          // of the program's groups
  std::optional<ScenarioForecast> forecast;  // empty: the job hangs (simulated_hang() says why)
};

// Times a derived scenario; needs no worker. Errors: a call that is not modelled, too many events,
// a time beyond the range of the clock.
Result<TimedScenario> time_scenario(const runtime::Scenario& scenario, DerivedRanks derived,
                                    const Machine& machine);

// How long the job's steps would take if one thing were different: sim/forecast/what_if.h. `timed`
// is of this machine and does not hang. Errors: a call that is not modelled.
Result<std::vector<WhatIf>> what_ifs(const TimedScenario& timed, const Machine& machine);

// The same job with durations that vary: sim/forecast/trials.h. Errors: those described there.
Result<TrialsForecast> run_trials(const TimedScenario& timed, const Machine& machine,
                                  const TrialOptions& options);

}  // namespace lockstep::sim
