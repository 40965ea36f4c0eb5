// What is wrong with the input itself: ranks without a trace, damage, contradictions.
#pragma once

#include <vector>

#include "trace/run.h"
#include "verify/context.h"
#include "verify/report.h"

namespace lockstep::verify {

struct InputState {
  std::vector<trace::Rank> missing;  // took part by header or group, but no trace was given
  std::vector<trace::Rank> damaged;  // records could not be used, or the file was cut off
  std::vector<Finding> findings;
};

// `live`: a trace without end mark is still being written, not cut off. O(world size).
InputState check_input(const trace::Run& run, bool live);

// Ranks that left no trace: who waits for them? Of 512 dumps it is often the one that is not there
// that matters.

// Adds to the note on missing ranks which calls lack them: first those ranks that alone keep most
// calls from completing, then those that others may wait for; and for whom nobody waits. The calls
// are the note's evidence. O(wait points + missing ranks · log).
void tell_who_waits_for_the_missing(const Context& context, const std::vector<trace::Rank>& missing,
                                    Finding& note);

}  // namespace lockstep::verify
