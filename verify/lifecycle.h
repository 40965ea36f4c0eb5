// The life of one operation: issued, completed, waited for, its buffer left alone meanwhile.
#pragma once

#include <vector>

#include "verify/context.h"
#include "verify/matching/explain_deviation.h"

namespace lockstep {

// Asynchronous operations that a rank which ended cleanly never waited for. In c10d traces only
// where it, or a peer in the same call, does wait for such calls: not every recorder sees waits.
// Under MPI every request must be waited for (or tested, or freed), messages included, before
// MPI_Finalize. O(calls).
std::vector<Cause> check_lifecycle(const Context& context);

// Buffers that the trace shows written (or read, where the operation fills them) between the issue
// and the wait of an asynchronous operation. One finding per operation and source place. O(events).
std::vector<Cause> check_buffers(const Context& context);

}  // namespace lockstep
