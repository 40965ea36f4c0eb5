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

// How far back a rank's past counts.
inline constexpr std::uint32_t kCallsSearched = 4096;  // calls searched: a step of a large model
inline constexpr std::uint32_t kCallsCompared = 64;    // calls compared before two positions

// Whether the call is the first of its step. Calls without a step lie within the one before.
bool begins_step(const std::vector<trace::Call>& calls, std::uint32_t index);

// Whether two calls of one rank come from the same statement of its program: same group, operation,
// sizes, parameters, peer and source location, as far as these were recorded.
bool is_same_of_program(Agreement& agreement, const trace::Call& a, const trace::Call& b);

// Whether several threads issued the rank's last calls before `call`. Then nothing
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
//   a c | a b c | a b c      what comes before c is b, except the first time
Usual usually_precedes(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether the run of calls like the one before this one, this one included where it is like them,
// is as long as an earlier one. A run ends with its step. Layers issue the same call several times,
// and what comes before them varies:
//
//   a a a b | c a a a b | a a b      runs of three, and one of two
//
// One earlier run does not show how long runs are: it may have been cut by what comes only once, as
// when DDP arranges its buckets after the first step. Nor do barriers make runs of a length that
// matters. `needed`: how many earlier runs of other lengths make this one unusual. O(4096).
Usual is_run_usual(const trace::Run& run, Agreement& agreement, CallRef call,
                   std::uint32_t needed = 2);

}  // namespace lockstep::verify
