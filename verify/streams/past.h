// What a rank's own past predicts: training steps repeat, so a call that is replaced, added or left
// out differs from the rank's last rounds. Calls are those of all its groups, in program order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"

namespace lockstep::verify {

// Whether two calls of one rank come from the same statement of its program: same group, operation,
// sizes, parameters, peer and source location, as far as these were recorded.
bool is_same_of_program(Agreement& agreement, const trace::Call& a, const trace::Call& b);

// Whether several threads issued the rank's calls of late, up to `call` of them. Then nothing
// orders them, and what came before a call says nothing.
bool mixes_threads(const trace::RankTrace& trace, std::uint32_t call);

// The earlier calls that the past predicts at this call's position: those that followed the calls
// just before it at earlier occurrences. With a past of "a b c | a b d | a b", c and d are usual
// after "a b". The occurrence with the longest equal sequence decides; of several that are equally
// long, each counts. At most 8, the newest first. O(4096 · 64) comparisons at most.
std::vector<std::uint32_t> usual_calls(const trace::Run& run, Agreement& agreement, CallRef call);

// The usual call, if there is exactly one.
std::optional<std::uint32_t> usual_call(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether the past predicts the call at its position. no: it predicts other calls. unknown: it
// predicts none, or by nothing but barriers, or does not tell whether a loop ends here.
enum class Usual : std::uint8_t { yes, no, unknown };
Usual is_usual(const trace::Run& run, Agreement& agreement, CallRef call);

// The same by what the rank does before and, over NCCL, where hosts go on, by what it does later.
// In a first round, which has no past, calls of the round itself may look like one; what comes
// later shows it:
//
//   a a c | a a b c | a a b c      after a comes a, by the first two calls; after a a comes b
Usual is_usual_anywhere(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether nothing but later rounds predicts a call here, and not reliably: they go on in different
// ways, or they belong to the same row of equal rounds, of which this may be one. Two micro-batches
// before each clipping look like a first step that lacks it:
//
//   a b a b c | a b a b c      after a b comes c, or the second micro-batch
bool is_first_round_doubtful(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether both ranks make, in other rounds, now the one and now the other of these two calls after
// the same calls: a loss may be averaged every second step. Then earlier rounds alone say nothing.
//
//   a | a b | a | a b      and where the second round lacks b: after a comes b, or the next a
bool are_both_usual(const trace::Run& run, Agreement& agreement, CallRef one, CallRef other);

// Whether the rank's later rounds make the other rank's call in place of this one: then it was left
// out here. Not where the two are one call, nor where it may be one of several equal calls in a
// row.
//
//   a c | a b c | a b c      the first round lacks b, which the other rank makes there
bool later_rounds_make(const trace::Run& run, Agreement& agreement, CallRef call, CallRef other);

// Whether the call before this one usually precedes the calls from here on, by what the rank does
// later. In a first round it shows a call left out:
//
//   a c | a b c | a b c      what comes before c is b, but for the first time
Usual usually_precedes(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether the run of calls like the one before this one, this one included where it is like them,
// is as long as an earlier one. A run ends with its step. Layers issue the same call several times,
// and what comes before them varies:
//
//   a a a b | c a a a b | a a b      runs of three, and one of two
//
// One earlier run does not show how long runs are: it may have been cut by what comes only once, as
// when DDP arranges its buckets after the first step. Nor do barriers make runs of a length that
// matters. O(4096).
Usual is_run_usual(const trace::Run& run, Agreement& agreement, CallRef call);

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
