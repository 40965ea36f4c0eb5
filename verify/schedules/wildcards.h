// Receives from any source: what the recorded run made of them, and what another legal schedule
// would (verify/schedules/search.h).
//
// A run that ended well, or hung, is judged by the choices that it made; where some other choices
// end in ranks that wait for ever, or in a message that does not fit its receive, that is a
// wildcard-race with the schedule as its witness. Where every choice ends well there is no race,
// however many orders there are.
#pragma once

#include <optional>
#include <vector>

#include "verify/context.h"
#include "verify/schedules/search.h"

namespace lockstep::verify {

// The exact replay of what happened, with the search's fitting choices. A rank counts as stuck only
// where it is in every schedule: whatever its receives take and, under MPI, although sends are
// buffered. O(events log events).
ReplayResult replay_as_recorded(const trace::Run& run, const std::vector<GroupStreams>& groups,
                                Agreement& agreement, ReplayOptions options,
                                const ScheduleSearch& search);

// The race behind ranks that hang, or raised an exception behind a receive from any source.
// O(matches log matches).
std::optional<Cause> explain_observed_race(const Context& context, const ScheduleSearch& search);

// The race in a run that ended well, or in a program that need not hang. `buffered_sends`: of the
// search. One replay, O(events log events).
std::optional<Cause> explain_possible_race(const Context& context, const ScheduleSearch& search,
                                           bool buffered_sends);

}  // namespace lockstep::verify
