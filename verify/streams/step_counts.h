// Calls counted step by step. A program makes as many calls of one kind in each step; of two ranks
// that diverge, the one that makes another number of them in that step left calls out, or made too
// many, even if all of these calls look alike and pair with calls of the next step from there on:
//
//   rank 0   a a a | a a a | a a a | a a a
//   rank 1   a a a | a a   | a a a | a a a      left one out in the second step; rank 0 waits in
//                                               its last
#pragma once

#include <cstdint>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"
#include "verify/streams/rounds.h"

namespace lockstep::verify {

// Whether rank `usual` (an index, as `deviant` is) makes as many calls like `like`, a call of any
// rank, in its step as both ranks do in their other steps, or fewer if it may still make the rest,
// and `deviant` another number. False where calls lack a step, where fewer than two other steps are
// known, where these differ from each other, or where `deviant` stopped in that step and may have
// made more. O(calls of both).
bool do_counts_tell(const trace::Run& run, Agreement& agreement, std::uint32_t usual,
                    std::uint32_t deviant, CallRef like);

// Which of two calls, at which two ranks diverge, is that of the rank that makes the usual number
// of calls like either in that step. O(calls of both).
Expected expected_by_counts(const trace::Run& run, Agreement& agreement, CallRef first,
                            CallRef second);

}  // namespace lockstep::verify
