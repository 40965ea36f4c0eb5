// Witnesses of a hang: what its ranks did in earlier rounds (verify/streams/past.h), and what their
// sisters did.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"
#include "verify/streams/edits.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

// Whether any trace is a snapshot of a running process (RankTrace::snapshot).
bool is_snapshot(const trace::Run& run);

// Whether the trace holds the rank's earlier calls: false where a bounded recorder dropped them and
// in a dump of open calls alone. O(calls).
bool knows_its_past(const Context& context, std::uint32_t rank);

// The newest call, which shows how far the rank's program got: over NCCL the one it issued last,
// because hosts go on; otherwise the one in which it waits. kNoCall: it waits in none.
std::uint32_t newest_call(const Context& context, std::uint32_t rank);

// What witnesses show about a call that some members never issued: these left it out, those who
// wait issued one too many, or nothing shows which.
enum class Fault : std::uint8_t { missing, extra, unknown };
inline constexpr const char* kEitherWay =
    "The traces do not show which: either it is missing on the one side, or it is one too many on "
    "the other.";

// Whether calls of two ranks may be the same one: by group, form and line of the program.
bool is_like(const Context& context, const trace::Call& a, const trace::Call& b);

// For a call that the past does not predict: whether the rank then continued as its past predicts.
// If it did, the call was one too many. If not, it may begin a new part of the program, such as a
// checkpoint. False where the rank blocks in it: what would have followed is unknown.
bool goes_on_as_usual(const Context& context, CallRef added);

// Where a rank broke with its own past: a call among its newest that was not usual there.
struct Break {
  std::uint32_t rank = 0;   // rank index
  std::uint32_t call = 0;   // the first such call
  std::uint32_t usual = 0;  // the earlier call that its past predicts there
  // How the rank's calls from `call` on differ from those that its past predicts from `usual` on.
  // For a rank that blocks in `call`, it is what that call alone suggests.
  EditKind kind = EditKind::replaced;
};

// Where some of the ranks broke with their past while the others went on as usual. Empty if the
// past of one of them is too short to decide. O(ranks · 64) times the cost of is_usual(), and of
// comparing a rank's program with 8 others where a call is not usual.
std::vector<Break> breaks_with_the_past(const Context& context,
                                        const std::vector<std::uint32_t>& ranks);

// Sisters: ranks with the same group rank in another group of equal size, with other members. The
// pipelines of a mesh, for example, exchange the same messages side by side, so one shows what
// another should do.

// Whether the groups are equally large, of other ranks, and for the same purpose as far as is
// known. Two groups of the same ranks are the same ranks for two purposes, and no example to each
// other.
bool are_sisters(const trace::Tables& tables, const trace::RankTrace::Membership& a,
                 const trace::RankTrace::Membership& b);

// Whether ranks of other groups of equal size make calls like this one, so that it belongs to the
// program. O(calls).
bool is_made_in_sister_groups(const Context& context, CallRef call);

// Whether `rank` left out a message to (or from) `peer`, by the comparison with its sisters: where
// the programs diverge, the sister posts the message to the sister of `peer`, and `rank` does not.
// At most 8 sisters are asked. Rank indices. O(ranks + 8 · calls).
bool leaves_out_message(const Context& context, std::uint32_t rank, trace::GroupId group,
                        std::uint32_t peer, trace::Op op);

// Among the ranks on both sides of the messages at `points`: those whose messages, or the calls
// between them, differ from their sisters'. Empty where a rank has no sister, where its sisters
// disagree, where its first messages were not recorded, and for more than 64 ranks.
// O(64 · 8 · calls).
std::vector<std::uint32_t> ranks_unlike_sisters(const Context& context,
                                                const std::vector<const WaitPoint*>& points);

}  // namespace lockstep::verify
