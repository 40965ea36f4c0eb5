// Calls that all members issued and that do not complete: does a device or the transport stall, or
// may the call be running?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// The members (rank indices, ascending) whose traces show that they completed the call of a group
// in which others wait. O(members).
std::vector<std::uint32_t> completed_by(const Context& context, const WaitPoint& point);

// Why a call that all members issued may not be a stall: no watchdog ended a rank that waits there,
// or a snapshot shows only that it is under way. `victims`: rank indices that wait for it, directly
// or through others. Empty where it is a stall.
std::string may_be_running(const Context& context, const WaitPoint& point,
                           const std::vector<std::uint32_t>& victims);

// Why the waits in dumps may end at the next moment: when the files were written, no call had been
// open for longer than others of the job took. "" where one had been, or that is not known. The
// words follow those of a wait. O(ranks).
std::string may_be_late(const Context& context);

// Whether a job over NCCL recorded only which calls were issued. Then nothing shows which of them
// completed, nor what a host did after its last call.
bool issued_alone(const Context& context);

// Why ranks that seem to have stopped before a call (roots of `wait`) may instead hang in the
// newest call that they issued: issued_alone(), and no member of that call went on, so it may be
// the one that does not complete. Empty where they did stop. O(groups · members).
std::string may_be_in_newest_call(const Context& context, const WaitCause& wait);

// Explains a stall: the device or the transport is at fault, not the program. Where start events
// were recorded, the culprits are the devices that did not begin the call. O(waiting ranks).
Cause explain_stall(const Context& context, const WaitPoint& point);

}  // namespace lockstep::verify
