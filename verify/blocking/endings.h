// What neither the comparison of streams nor the wait-for graph shows: messages without a partner,
// calls that all members issued and that do not complete, deaths and exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Finds matching point-to-point calls with different sizes or types, and calls without a partner
// although both ranks finished. O(unmatched calls · log ranks).
std::vector<Cause> check_point_to_point(const Context& context);

// On which of the waiting ranks' devices a call began, by their start events. For calls that all
// members issued and that do not complete.
enum class Begun : std::uint8_t { all, some, none, unknown };
Begun begun(const Context& context, const WaitPoint& point);

// Why such a call may not be a stall: no watchdog ended a rank that waits there, or a snapshot
// shows only that it is under way. `victims`: rank indices that wait for it, directly or through
// others. Empty where it is a stall.
std::string may_be_running(const Context& context, const WaitPoint& point,
                           const std::vector<std::uint32_t>& victims);

// Whether a job over NCCL recorded only which calls were issued. Then nothing shows which of them
// completed, nor what a host did after its last call.
bool issued_alone(const Context& context);

// Why ranks that seem to have stopped before a call (roots of `wait`) may instead hang in the
// newest call that they issued: issued_alone(), and no member of that call went on, so it may be
// the one that does not complete. Empty where they did stop. O(groups · members).
std::string may_be_in_newest_call(const Context& context, const WaitCause& wait);

// Explains such a stall: the device or the transport is at fault, not the program. Where start
// events were recorded, the culprits are the devices that did not begin the call. O(waiting ranks).
Cause explain_stall(const Context& context, const WaitPoint& point);

// Ranks that died (killed, or their trace has no end mark) while others were in calls with them.
// All members had issued the call, so nobody is missing, but the transport lost a side. Nothing
// where nobody died or no other rank was affected. O(ranks).
std::optional<Cause> explain_deaths(const Context& context);

// A sentence on where the user interrupted the job; nothing where nobody did. O(ranks).
std::optional<std::string> interruption(const Context& context);

// A note for ranks that were killed, for reports without an error that explains it. Nothing where
// none was killed. O(ranks).
std::optional<Finding> note_killed(const Context& context);

// The ranks with exceptions: those that raised by themselves (causes), and those that lost a
// connection or timed out (victims). O(ranks).
struct Exceptions {
  std::vector<std::uint32_t> causes, victims;  // rank indices, ascending
};
Exceptions sort_exceptions(const Context& context);
// The rule for the rank's last exception: unused-parameter for DDP's message about parameters
// without a gradient, otherwise rank-exception.
RuleId rule_of_exception(const Context& context, std::uint32_t rank);
// Explains the exceptions of ranks by the first one's; at least one rank.
Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks);

}  // namespace lockstep::verify
