// Who waits for whom at the end, in words: deadlocks, stalls, exceptions, ranks that finished
// early.
#pragma once

#include <vector>

#include "verify/context.h"
#include "verify/matching.h"
#include "verify/wait_graph.h"

namespace lockstep {

// The cause of one part of the wait-for graph, as a finding of its own: used where no deviation of
// the sequences explains it.
Cause explain_wait(const Context& context, const WaitCause& wait);

// The same part as a consequence of a cause that is already known: "ranks 0, 2 wait for ever in …".
Finding wait_consequence(const Context& context, const WaitCause& wait);

// Point-to-point calls that met with different sizes, and those that never met although both sides
// finished.
std::vector<Cause> check_point_to_point(const Context& context);

// Meetings to which everybody came, and which still did not complete in a run that hung.
std::vector<Cause> check_transport(const Context& context);

// Exceptions of ranks, split into those that nothing else explains (causes) and those of ranks that
// lost their connection or timed out (victims).
struct Exceptions {
  std::vector<std::uint32_t> causes, victims;  // rank indices, ascending
};
Exceptions sort_exceptions(const Context& context);
Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks);

}  // namespace lockstep
