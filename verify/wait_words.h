// The words in which findings speak of ranks that wait, and of what became of those they wait for.
#pragma once

#include <cstdint>
#include <string>

#include "verify/context.h"
#include "verify/matching/explain_deviation.h"

namespace lockstep {

// The call in which a waiting rank waits.
CallRef waiting_call(const Context& context, std::uint32_t rank);

// The place of a wait point's call in its group's sequence (point-to-point: in the rank's own).
std::uint64_t seq_at(const Context& context, const WaitPoint& point);

// "ranks 0, 2 wait in all_reduce(w) (call 4 of group world, step 1)".
std::string waiting_words(const Context& context, const WaitPoint& point);
// The same, and for whom: "… for rank 1".
std::string waiting_for_words(const Context& context, const WaitPoint& point);

// "finished its program", "raised an exception: …".
std::string state_words(const Context& context, std::uint32_t rank);
// The last thing that a rank is known to have done.
std::string last_seen(const Context& context, std::uint32_t rank);

// Places a cause at a wait point: its group, sequence number, step and parameters.
void place_at(const Context& context, const WaitPoint& point, Cause& cause);

}  // namespace lockstep
