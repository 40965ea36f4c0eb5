// What neither the sequences nor the wait-for graph tell: messages without their other side, calls
// that everybody issued and that did not complete, exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/context.h"
#include "verify/matching.h"

namespace lockstep {

// Point-to-point calls that met with different sizes, and those that never met although both sides
// finished. O(unmatched calls · log ranks).
std::vector<Cause> check_point_to_point(const Context& context);

// Meetings to which everybody came, and which still did not complete in a run that hung. O(wait
// points + waiting ranks).
std::vector<Cause> check_transport(const Context& context);

// Whether this is one: nobody is missing, and a watchdog ended a rank that waits there.
bool is_stalled(const Context& context, const WaitPoint& point);
// What it is then: neither its ranks nor their program are at fault, but what carries their calls.
Cause explain_stall(const Context& context, const WaitPoint& point);

// Ranks that died (killed, or their trace ends without a mark) while others were in calls with
// them: everybody came, so that nobody waits for anybody, but the transport lost a side. Nothing
// where nobody died or nobody was hurt by it. O(ranks).
std::optional<Cause> explain_deaths(const Context& context);

// The note for ranks that were killed, where no error of the calls explains it. Nothing where none
// was. O(ranks).
std::optional<Finding> note_killed(const Context& context);

// Exceptions of ranks, split into those that nothing else explains (causes) and those of ranks that
// lost their connection or timed out (victims). O(ranks).
struct Exceptions {
  std::vector<std::uint32_t> causes, victims;  // rank indices, ascending
};
Exceptions sort_exceptions(const Context& context);
Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks);

}  // namespace lockstep
