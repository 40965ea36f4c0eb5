// From the result of a simulation to the event model. So a simulated job that is stuck is judged by
// the same analyses, in the same words, as a real one that hung.
#pragma once

#include <cstddef>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "sim/engine/program.h"
#include "trace/run.h"

namespace lockstep::sim {

// `run` as the simulation went: the calls that each host reached, with the times of the simulated
// clock, completions, and end marks: clean or hung (exception where the trace has one). Where ranks
// are stuck, one that was recorded to hang after its last call still does. `folding` and `result`
// are of program_of(run), executed with record_issues.
trace::Run as_simulated(trace::Run run, const RunProgram& program, const Folding& folding,
                        const ExecutionResult& result);

// One rank of as_simulated(), by its index in run.ranks. Names are ids in run.tables.
trace::RankTrace simulated_rank(const trace::Run& run, std::size_t rank_index,
                                const RunProgram& program, const Folding& folding,
                                const ExecutionResult& result);

}  // namespace lockstep::sim
