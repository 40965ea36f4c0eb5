// Ranks that hang, or were killed, for no visible reason.
#pragma once

#include <optional>
#include <vector>

#include "verify/context.h"
#include "verify/replay/replay.h"
#include "verify/report.h"
#include "verify/verdict.h"

namespace lockstep::verify {

// Whether there may be members that nothing names: not all ranks of the job are known, and of a
// group only the members are that the traces show (the watchdog's messages). O(ranks + groups).
bool has_silent_members(const Context& context);

// Where the ranks stand if they hang where their traces end. Only for traces that just end and hold
// nothing but the issue of calls, as NCCL's logs do. A log that was copied while the job ran looks
// the same, so conclusions from this name no culprit. One replay, O(events log events).
std::optional<ReplayResult> presumed_positions(const Context& context,
                                               const OpenQuestions& questions);

// Adds what is known about ranks that hang, or were killed, for no visible reason, where
// find_causes() found none. `presumed`: a context of presumed_positions(), or nothing.
void add_unexplained(const Context& context, const Context* presumed, bool live,
                     OpenQuestions& questions, std::vector<Finding>& findings);

}  // namespace lockstep::verify
