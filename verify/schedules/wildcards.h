// Receives from any source: what happened in the recorded run, and what another legal schedule
// would do (verify/schedules/search.h).
//
// A recorded run is judged by the choices that it made. If other choices end with ranks that wait
// forever, or with a message that does not fit its receive, that is a wildcard-race, and the
// schedule is its witness. If all choices end well there is no race, however many orders there are.
#pragma once

#include <optional>
#include <vector>

#include "verify/context.h"
#include "verify/schedules/search.h"

namespace lockstep::verify {

// Replays what happened, with the choices of the search's fitting schedule. A rank counts as stuck
// only if it is stuck in every schedule: whatever its receives take, and under MPI even with
// buffered sends. O(events log events).
ReplayResult replay_as_recorded(const trace::Run& run, const std::vector<GroupStreams>& groups,
                                Agreement& agreement, ReplayOptions options,
                                const ScheduleSearch& search);

// Explains ranks that hang, or that raised an exception after a receive from any source, by a race;
// nothing where there is none. O(matches log matches).
std::optional<Cause> explain_observed_race(const Context& context, const ScheduleSearch& search);

// A race in a run that ended well, or in a program that does not hang in every schedule.
// `buffered_sends`: as in the search. One replay, O(events log events).
std::optional<Cause> explain_possible_race(const Context& context, const ScheduleSearch& search,
                                           bool buffered_sends);

}  // namespace lockstep::verify
