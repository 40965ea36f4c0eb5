// Programs on a simulated clock, whatever they were made from: what `simulate trace` and `simulate
// scenario` have in common.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cli/cmd_simulate.h"
#include "reports/exit_status.h"
#include "reports/findings/timeline_report.h"
#include "sim/engine/executor.h"
#include "sim/engine/fold.h"
#include "sim/engine/from_run.h"
#include "sim/engine/shared_cores.h"
#include "verify/report.h"

namespace lockstep {

struct SimulatedProgram {
  sim::RunProgram program;
  sim::Folding folding;
  sim::ExecutionResult result;  // with the times of issues; stuck or not
};

// `folding` and `prices` are of the program's job. Errors: a time that no simulated clock can show.
Result<SimulatedProgram> simulate_program(sim::RunProgram program, sim::Folding folding,
                                          const sim::Prices& prices, sim::Picos launch);

// The same on cores that ranks share; prices are work of a core then. Every rank is a class of its
// own.
Result<SimulatedProgram> simulate_on_cores(sim::RunProgram program, const sim::Prices& prices,
                                           const sim::SharedCores& shared);

// The run on the simulated clock as a timeline. `run`: as of sim::as_simulated(); it is judged, and
// left as it was. `counters`: TimelineOptions::counters, on the simulated clock.
std::string simulated_timeline(Run& run, std::vector<TimelineCounter> counters = {});

// Of a program that is stuck: what the verifier says of `run`, which the program was made of and
// which becomes what the simulation made of it.
Report judge_hang(const SimulatedProgram& simulated, Run& run);

// The ranks that can never go on.
std::vector<Rank> stuck_ranks(const SimulatedProgram& simulated);

// Of a program whose job does not end well: writes `what` happens, and why, as the verifier says it
// of `run`, which the program was made of, and adds its report to `json`; html, csv and timeline
// are those of the report. Returns `findings`, or what went wrong with writing.
ExitStatus report_failure(const SimulatedProgram& simulated, Run run, nlohmann::ordered_json json,
                          const std::string& what, const SimulationOutput& output);

// The same of a program that is stuck.
ExitStatus report_hang(const SimulatedProgram& simulated, Run run, nlohmann::ordered_json json,
                       const SimulationOutput& output);

}  // namespace lockstep
