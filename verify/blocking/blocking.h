// Explains who waits for whom at the end of a replay. From here a part of the wait-for graph
// (wait_graph.h) goes to the file that knows its kind:
//
//   all members issued the call, and it does not complete   stalls.h; in dumps device_stall.h
//   ranks went past the call                                passed_by.h
//   ranks wait for each other                               cycles.h, with those that tell which of
//                                                           them is odd: unanswered.h (a call that
//                                                           some never issued), messages.h,
//                                                           program_divergence.h, overtaking.h
//   a rank finished its program                             finished.h
//   a rank is in no call at all                             gone.h, with stopped.h (what a reader
//                                                           needs first) and endings.h
//
// What tells of a fault without a wait is apart: order_inversions.h. message_counts.h, unrecorded.h
// and witnesses.h hold evidence that several of these ask for.
#pragma once

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Explains one part of the wait-for graph as a cause of its own. Used where no deviation between
// streams explains it.
Cause explain_wait(const Context& context, const WaitCause& wait);

// The same part as a consequence of a known cause: "ranks 0, 2 wait in … for rank 1".
Finding wait_consequence(const Context& context, const WaitCause& wait);

}  // namespace lockstep::verify
