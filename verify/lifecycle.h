// Checks of a single operation: every asynchronous call is waited for, and its buffer is not
// accessed before.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Finds asynchronous operations that a rank which ended cleanly never waited for. In c10d traces
// only where a peer waited for the same call, because not every recorder sees waits. In MPI every
// request must be waited for (or tested, or freed) before MPI_Finalize, messages included.
// O(calls).
std::vector<Cause> check_lifecycle(const Context& context);

// Finds buffers that were written between the issue of an asynchronous operation and its wait, or
// read where the operation fills them. One finding per operation and source location. O(events).
std::vector<Cause> check_buffers(const Context& context);

}  // namespace lockstep::verify
