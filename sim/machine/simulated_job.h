// A job on the simulated clock: runs its programs on a machine, or at given prices, and writes the
// result as traces.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "sim/engine/program.h"
#include "sim/engine/recorded_calls.h"
#include "sim/engine/shared_cores.h"
#include "sim/machine/machine.h"
#include "sim/machine/work_time.h"
#include "trace/run.h"

namespace lockstep::sim {

// The node and core settings of a machine with `cores`. Rank r is on node r / ranks_per_node.
SharedCores shared_cores(const Machine& machine, std::size_t ranks);

// The prices of a job's calls. `layouts`: of the job's groups. Errors: call_cost()'s.
Result<Prices> prices_on(const Machine& machine, const ProgramJob& job,
                         const std::vector<GroupLayout>& layouts);

struct ExecutedJob {
  Folding folding;
  ExecutionResult result;  // without issue times, where ranks have devices
};

// Runs the job once, on the machine's network if it has one, which must be large enough for the
// job. `prices`: of the job on that machine. With a variation every rank is a class of its own,
// since equal ranks then differ in time.
ExecutedJob execute_job(const ProgramJob& job, const Machine& machine,
                        const std::vector<GroupLayout>& layouts, const Prices& prices,
                        const DurationVariation* variation = nullptr);

struct SimulatedProgram {
  RunProgram program;
  Folding folding;
  ExecutionResult result;  // with issue times; stuck or not
};

// Runs the program on devices. `folding` and `prices` are of its job; `links`, not owned, may be
// null. Errors: a time beyond the range of the clock.
Result<SimulatedProgram> simulate_program(RunProgram program, Folding folding, const Prices& prices,
                                          Picos launch, const SharedLinks* links = nullptr);

// Runs the program with its calls as long as they were recorded, times `factor`; calls without a
// recorded time take none. Every rank is a class of its own. Errors: as above.
Result<SimulatedProgram> simulate_with_calls(RunProgram program, const RecordedCalls& calls,
                                             double factor, Picos launch);

// The machine's slow ranks work longer (Machine::slow): what is in their streams, or where nothing
// is, what their hosts do.
void slow_down(RunProgram& program, const Machine& machine);

// Runs the program on a machine: on a device per rank and the links of its network, or on the cores
// that ranks share, where every rank is a class of its own, as with `apart`. `layouts`, `prices`:
// of the job on that machine. `launch`: as in ExecutionOptions; 0 where ranks share cores. Errors:
// as above; JobNetwork::of()'s.
Result<SimulatedProgram> simulate_on_machine(RunProgram program,
                                             const std::vector<GroupLayout>& layouts,
                                             const Prices& prices, const Machine& machine,
                                             bool apart = false, Picos launch = {});

// The ranks that did not reach the end of their programs.
std::vector<trace::Rank> stuck_ranks(const SimulatedProgram& simulated);

// A job in which ranks raise an exception has no complete steps to time. But which rank raises, and
// which ranks then wait forever, follows from the calls alone.
struct RaisedJob {
  trace::Run run;              // the derived calls
  SimulatedProgram simulated;  // as far as each rank gets; calls and work take no time
};

// `run`: the derived calls of all ranks. Empty if no rank raised an exception, or if its calls
// cannot be simulated: then something else went wrong.
std::optional<RaisedJob> raised_job(trace::Run run);

// A simulated run as traces (docs/trace-format.md): what every rank called, with the issue and end
// of each call on the simulated clock. `verify`, `derive --against` and others read them.

// Writes rank_<r>.trace.jsonl for every rank into a folder, which it makes if needed. `run`: the
// run that the program was made from. Errors: a folder or file that cannot be written.
Status write_simulated_traces(const SimulatedProgram& simulated, const trace::Run& run,
                              const std::string& folder);

}  // namespace lockstep::sim
