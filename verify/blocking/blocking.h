// Who waits for whom at the end, in words: deadlocks, stalls, exceptions, ranks that finished
// early.
#pragma once

#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// The cause of one part of the wait-for graph, as a finding of its own: used where no deviation of
// the sequences explains it.
Cause explain_wait(const Context& context, const WaitCause& wait);

// The same part as a consequence of a cause that is already known: "ranks 0, 2 wait for ever in …".
Finding wait_consequence(const Context& context, const WaitCause& wait);

}  // namespace lockstep::verify
