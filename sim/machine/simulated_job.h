// A job on the simulated clock: its programs run on a machine, or at prices that are given, and
// what came of it written down as traces.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "sim/engine/program.h"
#include "sim/engine/shared_cores.h"
#include "sim/machine/machine.h"
#include "sim/machine/work_time.h"
#include "trace/run.h"

namespace lockstep::sim {

// Of a machine that says how many cores a node has. Rank r is on node r / ranks_per_node.
SharedCores shared_cores(const Machine& machine, std::size_t ranks);

// `places`: of the job's groups. Errors: call_cost()'s.
Result<Prices> prices_on(const Machine& machine, const ProgramJob& job,
                         const std::vector<GroupPlace>& places);

struct Played {
  Folding folding;
  ExecutionResult result;  // without the times of issues, where ranks have devices
};

// `prices`: of the job on that machine. With a variation every rank is a class of its own.
Played play(const ProgramJob& job, const Machine& machine, const std::vector<GroupPlace>& places,
            const Prices& prices, const DurationVariation* variation = nullptr);

struct SimulatedProgram {
  RunProgram program;
  Folding folding;
  ExecutionResult result;  // with the times of issues; stuck or not
};

// `folding` and `prices` are of the program's job. Errors: a time that no simulated clock can show.
Result<SimulatedProgram> simulate_program(RunProgram program, Folding folding, const Prices& prices,
                                          Picos launch);

// The program on a machine: on devices of their own, or on the cores that ranks share, where every
// rank is a class of its own. `places`, `prices`: of the job on that machine. Errors: as above.
Result<SimulatedProgram> simulate_on_machine(RunProgram program,
                                             const std::vector<GroupPlace>& places,
                                             const Prices& prices, const Machine& machine);

// The ranks that can never go on.
std::vector<trace::Rank> stuck_ranks(const SimulatedProgram& simulated);

// A job of which ranks raise an exception makes no steps that could be timed; but who raises, and
// who then waits for ever, follows from the calls alone.
struct RaisedJob {
  trace::Run run;              // the derived calls
  SimulatedProgram simulated;  // up to where each rank came; its clock stands still
};

// The job that was derived into `folder`, every rank of it. Nothing where none of them raised, or
// where their calls cannot be simulated: then what went wrong is something else.
std::optional<RaisedJob> raised_job(const std::string& folder);

// A simulated run as traces (docs/trace-format.md): what every rank called, and when each call was
// issued and ended on the simulated clock. `verify`, `derive --against` and others read them.

// Writes rank_<r>.trace.jsonl for every rank, into a folder that is made where it is not there.
// `run`: what the program was made of. Errors: a folder or a file that cannot be written.
Status write_simulated_traces(const SimulatedProgram& simulated, const trace::Run& run,
                              const std::string& folder);

}  // namespace lockstep::sim
