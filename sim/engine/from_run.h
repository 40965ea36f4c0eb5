// From the event model to the simulator's programs, and back.
//
// A trace is a program: what its host issued, waited for and worked, in order. The simulator runs
// that program, whatever times were recorded; and what it found comes back as a Run, so that a job
// that is stuck is judged by the same analyses, in the same words, as one that hung for real.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sim/engine/executor.h"
#include "sim/engine/program.h"
#include "trace/run.h"

namespace lockstep::sim {

struct RunProgram {
  ProgramJob job;
  std::vector<std::vector<std::uint32_t>> events;  // of each program: the event of each step
};

// issue becomes a meeting (collectives in their group; send and recv of one source, destination,
// tag and group pair up in order), wait a wait, span work: of the host, or of the stream it names.
// What names no stream runs in its group's own, messages in one for each peer and direction.
// Errors, with the rank's file: a rank without a trace, a group whose members are not named,
// receives from any source, more than 255 streams or 65,535 groups on a rank.
Result<RunProgram> program_of(const trace::Run& run);

// `run` as it went in the simulation: calls up to where each host came, with the times of the
// simulated clock, completions, and ends: clean, or hung. `folding` and `result` are of
// program_of(run), with record_issues.
trace::Run as_simulated(trace::Run run, const RunProgram& program, const Folding& folding,
                        const ExecutionResult& result);

// One rank of it, by its place in run.ranks; names are those of run.tables.
trace::RankTrace simulated_rank(const trace::Run& run, std::size_t place, const RunProgram& program,
                                const Folding& folding, const ExecutionResult& result);

}  // namespace lockstep::sim
