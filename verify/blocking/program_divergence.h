// Where the programs of two ranks diverge before the call in which ranks wait: a call that was left
// out or added there, as the other ranks' programs and pasts show (verify/streams/programs.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

// Compares a rank of a cycle with one that it waits for: where their programs diverge, and which of
// the two does something unusual. From the first of `points` that shows it; only collectives.
// O(points · 64 · calls).
std::optional<ProgramDivergence> divergence_in_cycle(const Context& context,
                                                     const std::vector<std::size_t>& points);

// What most other ranks show about a cycle (divergence_by_votes).
struct Vote {
  ProgramDivergence divergence;  // where two ranks of the cycle diverge
  // Rank indices, ascending: the ranks that do what the deviant one does there, or did not issue
  // the call that it did not issue.
  std::vector<std::uint32_t> deviants;

  // Whether blaming these ranks (ascending) contradicts the vote: some of them did what most did,
  // or deviants are missing among them.
  bool contradicts(const Context& context, const std::vector<trace::Rank>& blamed) const;
};

// The vote at the first of `points` that decides, of the first 8; only collectives. O(64 · calls)
// for each.
std::optional<Vote> vote_in_cycle(const Context& context, const std::vector<std::size_t>& points);

// Where most ranks of a cycle broke with their past and those that they wait for did not
// (most_broke_with_the_past). From the first of `points`, of at most 8, that shows it; only
// collectives.
std::optional<ProgramDivergence> most_broke_in_cycle(const Context& context,
                                                     const std::vector<std::size_t>& points);

// Explains the divergence as a call left out, or as one too many. Nothing where the calls may only
// have come in another order. `alike` (rank indices, ascending): the culprits.
std::optional<Cause> explain_program_divergence(const Context& context,
                                                const ProgramDivergence& divergence,
                                                const std::vector<std::uint32_t>& alike);
std::optional<Cause> explain_program_divergence(const Context& context,
                                                const ProgramDivergence& divergence);

// Some ranks of a group wait in a call that the others never issued: did their calls pair with the
// wrong ones before, because the ones issued a call too many, or the others left one out? Source
// locations tell equal calls apart. If leaving out up to kMaxShift calls of those who wait makes
// all calls of the others agree, these are the calls:
//
//   wait     a.py:1  a.py:5  a.py:2  a.py:3        without a.py:5 the two agree
//   missing  a.py:1  a.py:2  a.py:3
//
// They were left out if more ranks wait than are missing; else ranks of other groups decide whether
// they are one too many (divergence_by_votes). Nothing where parameters were recorded. O(calls) for
// each of at most 8 wait points, 64 times that where votes are counted.
std::optional<Cause> find_shift_before(const Context& context, const WaitCause& wait);
inline constexpr std::size_t kMaxShift = 8;

// The rest is for snapshots of running processes (RankTrace::snapshot: Flight Recorder dumps).
// There, calls are asynchronous, no waits are recorded, and ranks are seen at different moments.
// See also find_device_stall() in blocking.h.

// Explains ranks that seem to hang outside of any call while others wait for them in `point`, where
// their programs show something else: they diverged before that call, or the waiting ranks issued
// one that never came before. Nothing where they just stopped, and where the recording starts
// mid-run. O(64 · calls).
//
//   rank 0   a b c | a b c           rank 0 seems to hang before its third b; in fact rank 1 issued
//   rank 1   a b c | a b b c         one b too many
std::optional<Cause> explain_other_path(const Context& context, const WaitPoint& point,
                                        const std::vector<std::uint32_t>& idle);

// Why a wait may be no fault: at least half of the group is missing and never issued such a call
// before, so the few may just be ahead. Empty where the wait is a fault.
std::string may_be_ahead(const Context& context, const WaitCause& wait);

}  // namespace lockstep::verify
