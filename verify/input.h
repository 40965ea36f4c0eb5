// Problems of the input itself: ranks without a trace, damage, contradictions.
#pragma once

#include <vector>

#include "trace/run.h"
#include "verify/context.h"
#include "verify/report.h"

namespace lockstep::verify {

struct InputState {
  std::vector<trace::Rank> missing;  // ranks of the world without a trace
  std::vector<trace::Rank> damaged;  // records could not be used, or the file was cut off
  std::vector<Finding> findings;
};

// Checks the input. `ends_seen`: a trace without end mark is not damage, because it is still being
// written, or ends where the job is known to have hung. O(world size).
InputState check_input(const trace::Run& run, bool ends_seen);

// Takes ranks out of `state.damaged`, and out of its note, whose file only lacks its end mark and
// which `findings` explain: an error concerns the rank, which waits in a call. Whoever ends a job
// that hangs, or that lost a rank, kills such ranks, so nothing is lost. O(ranks · findings).
void leave_out_killed_waiters(const Context& context, const std::vector<Finding>& findings,
                              InputState& state);

// Adds to the note about missing ranks which calls lack them. Of 512 dumps, the one that is not
// there often matters most. First come the ranks for which alone most others wait, then those for
// which others may wait, then those for which nobody waits. The calls become the note's evidence.
// O(wait points + missing ranks · log).
void note_who_waits_for_missing(const Context& context, const std::vector<trace::Rank>& missing,
                                Finding& note);

}  // namespace lockstep::verify
