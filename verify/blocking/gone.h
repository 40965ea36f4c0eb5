// Ranks that do not come to a call in which others wait, and are in no call themselves: they died,
// raised an exception, stopped, or are in the creation of a process group.
#pragma once

#include <optional>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Explains a wait whose roots are such ranks.
Cause explain_gone(const Context& context, const WaitCause& all);

// Ranks that all stay in the creation of a process group, by their stacks, while no call is open:
// nobody waits for them but they themselves. Nothing where some rank may still come.
std::optional<Cause> explain_stay_in_creation(const Context& context);

}  // namespace lockstep::verify
