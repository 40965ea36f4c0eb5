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
#include "verify/streams/past.h"

namespace lockstep::verify {

// Whether a rank (index) makes as many calls like `like`, a call of any rank, in that step as in
// all of its others, of which two or more must be known as a whole. unknown: where calls lack a
// step, where other steps differ from each other, or where the rank stopped in that step with fewer
// calls than usual. O(calls of the rank).
Usual keeps_count(const trace::Run& run, Agreement& agreement, std::uint32_t rank, CallRef like,
                  std::int32_t step);

// Which of two calls, at which two ranks diverge, is expected by these counts. first: the first
// rank makes the usual number of calls like its own in that step, and the second one does not; or
// it is the second one that makes too many like its own. O(calls of both).
Expected expected_by_counts(const trace::Run& run, Agreement& agreement, CallRef first,
                            CallRef second);

}  // namespace lockstep::verify
