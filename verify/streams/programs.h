// Programs: the calls of a rank in all its groups, in program order. Ranks of one mesh run the same
// program in groups of their own. Where two members of a group diverge, the other ranks show which
// of the two still does what everybody does.
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

namespace lockstep::verify {

// The number of calls at the start of two ranks' programs (rank indices) that agree, where each
// group of one rank corresponds to one group of the other. Nothing if a recording starts in
// mid-run. O(calls).
std::optional<std::uint32_t> common_start(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b);

// Whether two ranks made the same calls, in groups that correspond, just before these. Compares the
// 64 calls before, or all that were recorded, but needs at least one. If recordings start in
// mid-run, nothing else shows that the two did not diverge before.
bool did_the_same_before(const trace::Run& run, Agreement& agreement, CallRef a, CallRef b);

// Two ranks whose programs diverge.
struct ProgramDivergence {
  std::uint32_t usual = 0, deviant = 0;  // rank indices
  std::uint32_t index = 0;               // of the first different call, in both programs
};

// Which of ranks `a` and `b` (rank indices) does something unusual where their programs diverge:
// the other ranks that do as one of the two there vote. Only ranks in groups of the same sizes
// vote, at most 64. Nothing on a tie, without votes, or if ranks without traces could have turned
// the vote; if one of the two programs ends there, if the two are in groups of different sizes, or
// if a recording starts in mid-run. O(64 · calls before the difference).
std::optional<ProgramDivergence> divergence_by_votes(const trace::Run& run, Agreement& agreement,
                                                     std::uint32_t a, std::uint32_t b);

// The same, unless most broke with their past (below); on a tie or without votes, what the two
// ranks do in their other rounds decides. Costs one most_broke_with_the_past() more, and one
// is_usual() for each of the two.
std::optional<ProgramDivergence> find_program_divergence(const trace::Run& run,
                                                         Agreement& agreement, std::uint32_t a,
                                                         std::uint32_t b);

// Whether of two ranks that did the same up to these calls one leaves a loop which the other goes
// on with, and nothing shows how long the loop should be (is_at_end_of_varying_loop).
bool part_at_end_of_varying_loop(const trace::Run& run, Agreement& agreement, CallRef first,
                                 CallRef second);

// Which of two calls, of ranks that run one program and did the same up to them, is unusual by what
// the two ranks do in their other rounds: true for the second. Nothing where that does not show it.
std::optional<bool> is_second_unusual(const trace::Run& run, Agreement& agreement, CallRef first,
                                      CallRef second);

// What the group is for: its description ("TENSOR_MODEL_PARALLEL"), otherwise its name before the
// number that distinguishes it from its sisters ("embedding_1"). Empty where neither says: c10d's
// own names are numbers, and a name without one is no other group's.
std::string_view role_of(const trace::Tables& tables, const trace::RankTrace::Membership& group);

// Whether the recorder kept the rank's first calls.
bool is_known_from_its_start(const trace::RankTrace& trace);

// Whether the recording holds what the rank did before. A dump of active calls only does not: it
// leaves out what completed, anywhere. It may hold messages of batches that did, whose own entries
// never tell; that they completed has no time there. O(calls), at worst O(events).
bool holds_its_past(const trace::RankTrace& trace);

// For ranks (indices) of which the program of `shorter` is the start of that of `longer`: true if
// most other ranks continue as `longer` does, false if most end as `shorter` does. Only ranks in
// groups of the same sizes vote, at most 64. Nothing on a tie, without votes, or if the two
// programs diverge otherwise. O(64 · calls of the shorter one).
std::optional<bool> others_go_on(const trace::Run& run, Agreement& agreement, std::uint32_t longer,
                                 std::uint32_t shorter);

// The divergence of ranks `a` and `b` (rank indices), if one of them broke with its past
// (expected_of) and at least half of the other ranks did the same: most batches may lack images, so
// that most ranks leave out the calls of a branch. Nothing if most ranks do the usual, or if the
// pasts do not decide. At most 64 ranks vote. O(64 · calls before the difference), and one
// expected_of().
std::optional<ProgramDivergence> most_broke_with_the_past(const trace::Run& run,
                                                          Agreement& agreement, std::uint32_t a,
                                                          std::uint32_t b);

// The ranks that do what the deviant one does there, itself included; ascending. O(ranks · calls
// before it).
std::vector<std::uint32_t> ranks_that_diverge_alike(const trace::Run& run, Agreement& agreement,
                                                    const ProgramDivergence& divergence);

// Whether the rank's call `index` is one of `group`.
bool calls_in(const trace::Run& run, std::uint32_t rank, std::uint32_t index, trace::GroupId group);

}  // namespace lockstep::verify
