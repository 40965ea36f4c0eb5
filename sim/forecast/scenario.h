// A scenario's job on a machine's simulated clock: what `lockstep simulate SCENARIO` says, as
// values.
//
// Deriving the ranks takes a worker and seconds, and knows nothing of machines; timing them takes
// neither. So a job is derived once (runtime/forecast/derived_ranks.h), and timed on as many
// machines as are asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/interrupts.h"
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

// What the ranks of a job call and compute, found by looking at them one by one.
struct DerivedRanks {
  trace::Run run;                       // of those that were looked at
  std::vector<trace::RankCosts> costs;  // by place in run.ranks
  std::vector<std::int32_t> traced;     // by rank of the job: who stands for it
  std::string origin;                   // the worker's version
  bool on_meta = false;
};

// Calls that NCCL carries alike, and how large they are.
struct CarriedCalls {
  trace::Op op = trace::Op::all_reduce;
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  Bytes least, most;
};

// What a job comes to: figures, and what the assumptions that they rest on depend on.
struct ScenarioForecast {
  std::string scenario;  // its name
  Machine machine;
  std::int64_t steps = 0;               // simulated
  std::int64_t samples = 0;             // of all ranks in a step
  std::vector<std::uint32_t> class_of;  // of each rank
  Forecast figures;
  std::int64_t checkpoints = 0;  // saved
  Picos checkpoint_time;         // of one: mean; 0 where none is saved
  FlopUse flops;                 // of the measured steps
  double flops_share = 0;        // of the peak
  bool dummies = false;          // samples that nobody asked for are computed as well
  bool pipeline = false;         // the classes of ranks are its stages
  ForecastPath path;
  std::vector<WhatIf> what_ifs;
  std::optional<TrialsForecast> trials;
  std::vector<CarriedCalls> carried;  // of the simulated ranks; none where it is not NCCL
  double state_bytes = 0;  // the most that a rank keeps: parameters, gradients, optimizer's state
  MemoryForecast memory;
  bool on_meta = false;
  bool timed_work = false;  // on this machine
  std::string derived_by;   // the worker's version
};

// What all ranks of a job compute; one rank's costs may be those of several.
struct RanksCosts {
  std::vector<trace::RankCosts> different;
  std::vector<std::size_t> of_rank;   // into `different`
  std::vector<std::int64_t> samples;  // of each rank in a step

  // Of each rank; valid while this is.
  std::vector<const trace::RankCosts*> pointers() const;
};

// A job with the times of a machine.
struct TimedScenario {
  std::string scenario;  // its name
  trace::Run run;        // the calls of all ranks, with the machine's times between them
  RanksCosts costs;      // that the times are of
  SimulatedProgram simulated;
  std::vector<GroupPlace> places;            // of the program's groups
  std::optional<ScenarioForecast> forecast;  // nothing: the job hangs (simulated_hang() says why)
};

// `derived`: of `scenario`. Needs no worker. Errors: a call that is not simulated, too many events,
// a time that no simulated clock can show.
Result<TimedScenario> time_scenario(const runtime::Scenario& scenario, DerivedRanks derived,
                                    const Machine& machine);

// What the job's steps would take if one thing were different: sim/forecast/what_if.h. `timed` is
// of this machine, and does not hang. Errors: a call that is not simulated.
Result<std::vector<WhatIf>> what_ifs(const TimedScenario& timed, const Machine& machine);

// The same job with durations that vary: sim/forecast/trials.h. Errors: those that are
// said there; the user's signal.
Result<TrialsForecast> run_trials(const TimedScenario& timed, const Machine& machine,
                                  const TrialOptions& options, Interrupts& interrupts);

}  // namespace lockstep::sim
