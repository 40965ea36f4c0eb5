// Ranks that left no trace: who waits for them? Of 512 dumps it is often the one that is not there
// that matters.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep {

// Adds to the note on missing ranks which calls lack them: first those ranks that alone keep most
// calls from completing, then those that others may wait for; and for whom nobody waits. The calls
// are the note's evidence. O(wait points + missing ranks · log).
void tell_who_waits_for_the_missing(const Context& context, const std::vector<Rank>& missing,
                                    Finding& note);

}  // namespace lockstep
