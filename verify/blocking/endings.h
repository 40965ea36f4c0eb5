// What neither the sequences nor the wait-for graph tell: messages without their other side, calls
// that everybody issued and that did not complete, exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Point-to-point calls that met with different sizes, and those that never met although both sides
// finished. O(unmatched calls · log ranks).
std::vector<Cause> check_point_to_point(const Context& context);

// Of a call that has everybody it needs and does not complete: whose devices began it, by their
// start events.
enum class Begun : std::uint8_t { all, some, none, unknown };
Begun begun(const Context& context, const WaitPoint& point);

// Why such a call shows no stall: no watchdog ended a rank that waits there, or a look at running
// processes shows no more than that it is under way. Empty: it shows one.
std::string may_be_under_way(const Context& context, const WaitPoint& point);
// What it is else: neither its ranks nor their program are at fault, but what carries their calls;
// where start events tell, the devices that did not begin it. O(waiting ranks).
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
// What an exception of the rank is: DDP's own words for parameters without a gradient, or any.
RuleId rule_of_exception(const Context& context, std::uint32_t rank);
Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks);

}  // namespace lockstep::verify
