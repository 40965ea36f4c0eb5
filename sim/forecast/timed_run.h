// Adds times to derived calls: puts work between them that lasts as long as the machine takes for
// it.
//
// The work becomes `span` events of the run, done by the host. So sim/engine/from_run.h makes a
// program from it as from any run, and a simulated hang is judged like any other.
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

// Replaces the spans of `run` by the modelled times of its costs.
//
// `costs`: for each of run.ranks, in their order, one segment of work before each call, wait and
// step. `samples`: how many the rank's host prepares for a step, by index in run.ranks. In the
// result every step ends with a span, even one of length 0; those that name a remedy stay, with
// length 0, and are no segment's. So does the saving of a checkpoint
// (kCheckpointSpan) and an evaluation (kEvaluationSpan): forecast() finds them by that. Errors,
// with the rank's file: costs that do not belong to this trace.
Result<trace::Run> timed_run(trace::Run run, const std::vector<const trace::RankCosts*>& costs,
                             const std::vector<std::int64_t>& samples, const Machine& machine);

// Whether the span only says that a remedy computed something in place of what a batch lacks.
bool is_remedy(const trace::Tables& tables, const trace::SpanMark& span);

// How long each segment of a rank's work takes on a machine, in a job of `world_size` ranks: the
// lengths of the spans that timed_run() adds; it adds none for 0. `samples` as above; if their
// preparation was timed (other_threads_nanos), that time is used. `slowness`: of the rank, see
// slowness_of().
std::vector<trace::Nanos> work_nanos(const trace::RankCosts& costs, std::int64_t samples,
                                     const Machine& machine, std::int64_t world_size,
                                     double slowness = 1);

}  // namespace lockstep::sim
