// Programs: the calls of a rank in all its groups, in program order. Ranks of one mesh run the same
// program in groups of their own, so where two members of a group diverge, the others tell which of
// the two still does what everybody does.
//
//   rank 0   exchange(ep0)  exchange(ep0)  reduce(dp0)
//   rank 1   exchange(ep0)  exchange(ep0)  reduce(dp1)
//   rank 2   exchange(ep1)  exchange(ep1)  …
//   rank 3   exchange(ep1)  reduce(dp1)                  rank 3 left out its second exchange
//
// A rank's own past (past.h) can show the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

// The number of calls at the start of two ranks' programs (rank indices) that agree. Each group of
// the one corresponds to one of the other. Nothing where a recording starts in mid-run. O(calls).
std::optional<std::uint32_t> common_start(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b);

// Whether two ranks made the same calls, in groups that correspond, just before these: 64, or all
// that were recorded; at least one. Where recordings start in mid-run, nothing else shows that the
// two did not diverge before.
bool did_the_same_before(const trace::Run& run, Agreement& agreement, CallRef a, CallRef b);

// Two ranks whose programs diverge.
struct ProgramDivergence {
  std::uint32_t usual = 0, deviant = 0;  // rank indices
  std::uint32_t index = 0;               // of the first different call, in both programs
};

// Which of ranks `a` and `b` (rank indices) does something unusual where their programs diverge, by
// the majority of the other ranks that follow one of the two there. Nothing on a tie, if there are
// none, or if ranks without traces could have turned the vote; where one just ends, where the two
// are in groups of other sizes, or where a recording starts in mid-run. Only ranks in groups of the
// same sizes are asked, at most 64. O(64 · calls before the difference).
std::optional<ProgramDivergence> divergence_by_votes(const trace::Run& run, Agreement& agreement,
                                                     std::uint32_t a, std::uint32_t b);

// Which of ranks `a` and `b` (rank indices) does something unusual where their programs diverge.
// Most of the other ranks that follow one of the two there decide. On a tie, or if there are none,
// what the two do in their other rounds decides. Nothing where that does not tell either, where the
// two are in groups of other sizes, or where a recording starts in mid-run. Only ranks in groups of
// the same sizes are asked, at most 64. O(64 · calls before the difference), and one is_usual() for
// each of both.
std::optional<ProgramDivergence> find_program_divergence(const trace::Run& run,
                                                         Agreement& agreement, std::uint32_t a,
                                                         std::uint32_t b);

// Which of two calls, of ranks that run one program and did the same up to them, is unusual by what
// the two ranks do in their other rounds: true for the second. Nothing where that does not tell.
std::optional<bool> is_second_unusual(const trace::Run& run, Agreement& agreement, CallRef first,
                                      CallRef second);

// What the group is for: its description ("TENSOR_MODEL_PARALLEL"), otherwise its name before the
// number that distinguishes it from its sisters ("embedding_1"). Empty where neither says: c10d's
// own names are numbers, and a name without one is no other group's.
std::string_view role_of(const trace::Tables& tables, const trace::RankTrace::Membership& group);

// Whether the recorder kept the rank's first calls.
bool is_known_from_its_start(const trace::RankTrace& trace);

// Where the program of rank `shorter` is the start of that of `longer` (rank indices): whether the
// other ranks go on as the longer one does, or end as the shorter one does; the majority of those
// in groups of the same sizes decides, at most 64 are asked. Nothing where it is tied, where no
// other rank shows it, or where the two diverge otherwise. O(64 · calls of the shorter one).
std::optional<bool> others_go_on(const trace::Run& run, Agreement& agreement, std::uint32_t longer,
                                 std::uint32_t shorter);

// Where the programs of ranks `a` and `b` (rank indices) diverge: whether of the other ranks as
// many or more do as the one that broke with its past (expected_of). Most batches may lack images,
// so that most ranks leave out the calls of a branch. Nothing where most do the usual, or where the
// pasts do not tell. At most 64 others are asked. O(64 · calls before the difference), and one
// expected_of().
std::optional<ProgramDivergence> most_broke_with_the_past(const trace::Run& run,
                                                          Agreement& agreement, std::uint32_t a,
                                                          std::uint32_t b);

// The ranks that do as the deviant one there, itself included; ascending. O(ranks · calls before
// it).
std::vector<std::uint32_t> ranks_that_diverge_alike(const trace::Run& run, Agreement& agreement,
                                                    const ProgramDivergence& divergence);

// Whether the rank's call `index` is one of `group`.
bool calls_in(const trace::Run& run, std::uint32_t rank, std::uint32_t index, trace::GroupId group);

}  // namespace lockstep::verify
