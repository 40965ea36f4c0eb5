// Ranks that finished their program while others wait for them: did the ones end too early, or the
// others go on too long?
#pragma once

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Explains ranks that finished while others wait. Either the numbers of iterations differ, or some
// ranks left out (or added) calls at the end. The rule depends on the step of the waiting call:
//
//   finished after step 9, others wait in step 10    unequal_iterations
//   finished after step 9, others wait in step 9     missing_collective, or extra_collective if
//                                                    only a few ranks wait
//
// Who is named, from strong evidence to weak: a rank that is the only one not to finish, and that
// began a round which nobody else began, went on too long; of two equal sides, the one for which
// ranks wait in other calls, too, ended too early; then numbers, programs and pasts decide.
//
// The roots of `wait` must have finished. O(calls of all ranks).
Cause explain_finished(const Context& context, const WaitCause& wait);

// Whether ranks that finished, and lack the call at `point`, did so within a round of calls: the
// call is the next one of a rank that did as they until then.
bool ended_within_round(const Context& context, const WaitPoint& point);

// Whether a few ranks wait in the first call that the group ever saw, while most of it never made
// one, and nobody waits for the roots in any other call: these went on without it, and the rest of
// the group waits for the few.
bool is_new_to_most(const Context& context, const WaitCause& wait, const WaitPoint& point);

}  // namespace lockstep::verify
