// From what ranks call and what they compute to a program with times: the derived calls, with work
// between them as long as a machine takes for it.
//
// The work becomes `span` events of the run itself, of the host, so that sim/engine/from_run.h
// makes the program of it as of any run, and what hangs is judged as any run is.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/machine/machine.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::sim {

inline constexpr std::string_view kCheckpointSpan = "checkpoint", kEvaluationSpan = "evaluation";

// `costs`: of each of run.ranks, in their order; the stretches of work are the ones before its
// calls, waits and steps, one each. `samples`: that the rank's host prepares for a step, by place
// in run.ranks. Every step of the result ends with a span, be it of no length, and so does the
// saving of a checkpoint, with a span named kCheckpointSpan, and an evaluation: forecast() finds
// them. Spans that the run had are left out: what was computed then is in the costs.
// Errors, with the rank's file: costs that are not of this trace.
Result<trace::Run> timed_run(trace::Run run, const std::vector<const trace::RankCosts*>& costs,
                             const std::vector<std::int64_t>& samples, const Machine& machine);

// How long each stretch of a rank's work takes on a machine, in a job of so many ranks, of which it
// has a core or device to itself: the lengths of the spans that timed_run() puts in, and 0 where it
// puts none. `samples` as above; where their preparation was timed (beside_nanos), that counts.
std::vector<trace::Nanos> work_nanos(const trace::RankCosts& costs, std::int64_t samples,
                                     const Machine& machine, std::int64_t world_size);

// The run of all ranks of a job in which each does what the one does that `traced` names for it.
// Errors: a traced rank that has no trace, sends messages, or calls in a group that does not hold
// those it stands for; more than kMostSpreadEvents events.
inline constexpr std::uint64_t kMostSpreadEvents = 20'000'000;
Result<trace::Run> spread(trace::Run run, const std::vector<std::int32_t>& traced);

}  // namespace lockstep::sim
