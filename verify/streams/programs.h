// Programs: the calls of a rank in all its groups, in program order. Ranks of one mesh run the same
// program in groups of their own, so where two members of a group part, the others tell which of
// the two still does what everybody does.
//
//   rank 0   exchange(ep0)  exchange(ep0)  reduce(dp0)
//   rank 1   exchange(ep0)  exchange(ep0)  reduce(dp1)
//   rank 2   exchange(ep1)  exchange(ep1)  …
//   rank 3   exchange(ep1)  reduce(dp1)                  rank 3 left out its second exchange
//
// A rank's own past tells the same: training steps repeat, so a replaced or additional call stands
// out against the rank's last rounds.
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

// The earlier calls that the past predicts at this call's position: those that followed the calls
// just before it at earlier occurrences. With a past of "a b c | a b d | a b", c and d are usual
// after "a b". The occurrence with the longest equal sequence decides; of several that are equally
// long, each counts. At most 8, the newest first. O(4096 · 64) comparisons at most.
std::vector<std::uint32_t> usual_calls(const trace::Run& run, Agreement& agreement, CallRef place);

// The usual call, if there is exactly one.
std::optional<std::uint32_t> usual_call(const trace::Run& run, Agreement& agreement, CallRef place);

// Whether by the past a call is usual at its position; no: only others are; unknown: the past does
// not tell.
enum class Usual : std::uint8_t { yes, no, unknown };
Usual is_usual(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether as many calls like the one before this one came in a row before, this one included where
// it is like them; unknown: no such call was made before. O(4096).
Usual is_run_usual(const trace::Run& run, Agreement& agreement, CallRef call);

// Which of two calls, of ranks that did the same up to them, the past expects; nothing where it
// does not tell. The call that the ranks' own pasts show in the longer equal sequence is expected:
//
//   rank 0   t i h | t i h | t i      i came after the last 4 calls before, h after none of them:
//   rank 1   t i h | t i h | t h      rank 1 left out i
//
// Then the one that makes a run of equal calls as long as earlier ones. Where both calls open a new
// round for the first time, the one that came first in the first round. A call that is new may
// begin a new part of the program (a checkpoint), which the other rank missed; not within a round.
// O(4096 · 64) comparisons at most.
enum class Expected : std::uint8_t { first, second, unknown };
Expected expected_of(const trace::Run& run, Agreement& agreement, CallRef first, CallRef second);

// Whether a program that ended before this call of the rank ended within a round: the past expects
// this call alone, and since the last one like it the rank repeated earlier rounds, but no whole
// number of them. After the init i, the rounds a b c are cut short before the second c:
//
//   i | a b c | a b | c
//
// False where no such call came before. O(4096 · 64) comparisons at most.
bool is_within_round(const trace::Run& run, Agreement& agreement, CallRef call);

// The number of calls at the start of two ranks' programs (rank indices) that agree. Each group of
// the one corresponds to one of the other. Nothing where a recording starts in mid-run. O(calls).
std::optional<std::uint32_t> common_start(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b);

// Whether two ranks made the same calls, in groups that correspond, just before these: 64, or all
// that were recorded; at least one. Where recordings start in mid-run, nothing else shows that the
// two did not part before.
bool did_the_same_before(const trace::Run& run, Agreement& agreement, CallRef a, CallRef b);

// Two ranks whose programs part.
struct Parting {
  std::uint32_t usual = 0, deviant = 0;  // rank indices
  std::uint32_t index = 0;               // of the first different call, in both programs
};

// Which of ranks `a` and `b` (rank indices) does something unusual where their programs part. Most
// of the other ranks that follow one of the two there decide. On a tie, or if there are none, what
// the two do in their other rounds decides. Nothing where that does not tell either,
// where the two are in groups of other sizes, or where a recording starts in mid-run. Only ranks
// in groups of the same sizes are asked, at most 64. O(64 · calls before the
// difference), and one is_usual() for each of both.
std::optional<Parting> find_parting(const trace::Run& run, Agreement& agreement, std::uint32_t a,
                                    std::uint32_t b);

// Where the program of rank `shorter` is the start of that of `longer` (rank indices): whether the
// other ranks go on as the longer one does, or end as the shorter one does; the majority of those
// in groups of the same sizes decides, at most 64 are asked. Nothing where it is tied, where nobody
// tells, or where the two part otherwise. O(64 · calls of the shorter one).
std::optional<bool> others_go_on(const trace::Run& run, Agreement& agreement, std::uint32_t longer,
                                 std::uint32_t shorter);

// Where the programs of ranks `a` and `b` (rank indices) part: whether of the other ranks as many
// or more do as the one that broke with its past (expected_of). Most batches may lack images, so
// that most ranks leave out the calls of a branch. Nothing where most do the usual, or where the
// pasts do not tell. At most 64 others are asked. O(64 · calls before the difference), and one
// expected_of().
std::optional<Parting> most_broke_with_the_past(const trace::Run& run, Agreement& agreement,
                                                std::uint32_t a, std::uint32_t b);

// The ranks that do as the deviant one there, itself included; ascending. O(ranks · calls before
// it).
std::vector<std::uint32_t> ranks_that_part_alike(const trace::Run& run, Agreement& agreement,
                                                 const Parting& parting);

// Whether the rank's call `index` is one of `group`.
bool calls_in(const trace::Run& run, std::uint32_t rank, std::uint32_t index, trace::GroupId group);

}  // namespace lockstep::verify
