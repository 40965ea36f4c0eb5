// How ranks ended while others were in calls with them: they died, were interrupted, or raised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Ranks that died (killed, or their trace has no end mark) while others were in calls with them.
// All members had issued the call, so nobody is missing, but the transport lost a side. Nothing
// where nobody died or no other rank was affected. O(ranks).
std::optional<Cause> explain_deaths(const Context& context);

// A sentence on where the user interrupted the job; nothing where nobody did. O(ranks).
std::optional<std::string> interruption(const Context& context);

// A note for ranks that were killed, for reports without an error that explains it; else for ranks
// without an end mark to which others lost the connection while they waited for them. Nothing where
// there are none. O(ranks + wait points).
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
// What to do, where the rank's last exception is about memory or a defective GPU. Sets fix and next
// command of a rank-exception.
void advise_about_exception(const Context& context, std::uint32_t rank, Finding& finding);
// Explains the exceptions of ranks by the first one's; at least one rank.
Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks);

}  // namespace lockstep::verify
