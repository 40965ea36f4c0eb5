// An all-to-all as the members of its group made it, and which of their calls does not belong to
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// The calls of one all-to-all, by group rank. Missing calls are null.
struct Exchange {
  std::vector<CallRef> refs;
  std::vector<const trace::Call*> calls;
};

// The group's calls at index `instance`, with the calls of members `shifted` (ascending) taken `by`
// calls later. `members`: their streams by group rank; null: no trace.
Exchange exchange_at(const Context& context, const std::vector<const Stream*>& members,
                     std::size_t instance, const std::vector<std::size_t>& shifted = {},
                     std::size_t by = 0);

// A pair of members whose splits contradict each other at one all-to-all, as group ranks.
struct SplitConflict {
  std::size_t sender, receiver;
  std::int64_t sent, expected;
};

// Conflicts kept of one all-to-all: 1000 members have up to a million, and these suffice to see
// whether one member is part of all.
inline constexpr std::size_t kConflictsKept = 4096;

// The pairs of members for which what the one sends is not what the other expects. `calls` by group
// rank; null: no trace.
std::vector<SplitConflict> split_conflicts(const trace::Tables& tables,
                                           const std::vector<const trace::Call*>& calls);

// Where members (group ranks, ascending) are part of every conflict: did they leave out an
// all-to-all, issue one too many, or issue two in the other order? They did if their calls fit
// those of the others one call later, one call earlier, or both.
std::optional<Deviation> shifted_exchange(const Context& context, std::size_t g,
                                          const std::vector<const Stream*>& members,
                                          std::size_t instance,
                                          const std::vector<std::size_t>& deviants);

// Turns `shifted`, by which the few (group ranks) left out an exchange or made one too many, around
// where the past shows that most members did: their programs diverge from that of the few, and the
// few do there what was done before. The past of at most 16 members is searched.
void correct_by_past(const Context& context, const std::vector<const Stream*>& members,
                     std::size_t instance, const std::vector<std::size_t>& few, Deviation& shifted);

// The all-to-all that one of two members left out, or issued once too often, where their sizes
// contradict each other at `instance`. Sizes vary with the routing, so the programs of the two
// decide. They may diverge later than the sizes do:
//
//   rank 0   A  A  A  A  reduce      the sizes contradict each other from the second call on, the
//   rank 1   A  A  A  reduce         programs diverge at the fourth
std::optional<Deviation> program_divergence_at(const Context& context, std::size_t g,
                                               std::size_t instance, const Stream& one,
                                               const Stream& other);

// The odd program of the job, where it is one of these members that diverges from the others at an
// all-to-all, or before its call at `instance`. Sizes vary with the routing, so what was left out
// shows in the numbers of calls.
std::optional<Cause> explain_by_odd_program(const Context& context,
                                            const std::vector<CallRef>& members);

// Whether the members other than `few` (group ranks) are those of the odd program.
bool are_others_odd(const Context& context, const std::vector<CallRef>& members,
                    const std::vector<std::size_t>& few);

// What was sent comes back: experts return what they received, and gradients take the way of their
// tokens in reverse. So of two exchanges in a row the second one undoes the first. The only member
// whose call at `instance` is no such half of a pair, where those of all others are, as group rank;
// nothing where that is not so.
//
//   rank 0   sends 8, 11, receives 8, 13; sends 8, 13, receives 8, 11
//   rank 1   sends 13, 9, receives 11, 9; sends 13, 9, receives 11, 9      its second call is wrong
std::optional<std::size_t> breaks_round_trip(const Context& context,
                                             const std::vector<const Stream*>& members,
                                             std::size_t instance);

}  // namespace lockstep::verify
