// The rounds that a rank repeats, by its own past (verify/streams/past.h): which of two calls comes
// next, and whether a program ended, or began a new part, within a round.
#pragma once

#include <cstdint>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"

namespace lockstep::verify {

// Which of two calls the past predicts, of two ranks that did the same up to them. It is the call
// that the ranks' own pasts show after the longer equal sequence:
//
//   rank 0   t i h | t i h | t i      i came after the last 4 calls before, h after none of them:
//   rank 1   t i h | t i h | t h      rank 1 left out i
//
// Stronger evidence: the call that makes a run of equal calls as long as earlier ones. Weaker, if
// neither follows an equal sequence and both begin a step: the one that came first in the first
// step. A call that is new may begin a new part of the program (a checkpoint), which the other rank
// missed, but not within a round. O(4096 · 64) comparisons at most.
enum class Expected : std::uint8_t { first, second, unknown };
Expected expected_of(const trace::Run& run, Agreement& agreement, CallRef first, CallRef second);

// Whether a program that ended before this call of the rank ended within a round: the past predicts
// this call alone, and since the last one like it the rank repeated earlier rounds, but not a whole
// number of them. Here i initialises, and the second round a b c is cut short before c:
//
//   i | a b c | a b | c
//
// False where no such call came before. O(4096 · 64) comparisons at most.
bool is_within_round(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether a part of the program may begin with this call that it did not come to before, such as
// its first checkpoint: the rank never made such a call, and as far as its past shows it comes
// after a whole round. Then the past does not show whether it belongs there.
//
//   i | a b | a b | c
//
// O(4096 · 64) comparisons at most.
bool may_begin_new_part(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether earlier rounds differed, so that is_within_round() says little about a program that
// ended: generated texts have different lengths, and objects that are sent have different sizes.
//
//   a b b c | a b b b c | a            the last round repeats only a part of the one before it
//   a b1 | a b2 | a                    b1 and b2: calls of one kind, with different sizes
//
// O(4096 · 64) comparisons at most, and the rank's calls before this one.
bool do_rounds_vary(const trace::Run& run, Agreement& agreement, CallRef call);

}  // namespace lockstep::verify
