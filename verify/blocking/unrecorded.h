// Messages that dumps over Gloo do not hold, but count.
//
// Gloo's dumps hold no messages, so a rank that waits in one looks as if it had stopped, and the
// rank at fault may be another: the one that left out the other side. But the entries number a
// group's collectives and messages together (RankTrace::unrecorded), so that they tell how many
// messages a rank issued between two collectives:
//
//   rank 0   all_reduce  1 message  all_reduce  1 message  all_reduce  none  all_reduce: it waits
//   rank 1   all_reduce  1 message  all_reduce  1 message  all_reduce        nothing more
//
// Rank 0 left out a message that rank 1 waits for. Had rank 0 issued it, rank 1 would have stopped,
// or wait in a message of its own that nobody else lacks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// Whether ranks that seem to have stopped may wait in what the source does not hold: dumps of hosts
// that carry their calls out themselves.
bool may_wait_unseen(const Context& context, const WaitCause& wait);

struct UnseenMessages {
  enum class Told : std::uint8_t {
    none_used,  // no rank issued any in the groups that the dumps show
    all_made,   // the ranks that wait issued as many as in their earlier rounds
    left_out,   // `ranks` issued fewer
    unknown,    // not counted, or there is no round to compare with, or rounds differ
  };
  Told told = Told::unknown;
  std::vector<std::uint32_t> ranks;   // rank indices, ascending
  CallRef before;                     // of left_out: the call of the first of them …
  std::uint32_t made = 0, usual = 0;  // … and how many it issued before it, now and earlier
};

// What the counts tell of the ranks that wait. O(calls of these ranks).
UnseenMessages unseen_messages(const Context& context, const WaitCause& wait);

// Ranks that left out messages in which the ranks seem to wait that others wait for.
Cause explain_unseen_message(const Context& context, const WaitCause& wait,
                             const UnseenMessages& messages);

// Why ranks that seem to have stopped may be victims themselves: those dumps hold no messages, nor
// who creates a group. Empty: as far as they show, the ranks are not. Several ranks seldom stop at
// once by themselves; they wait for each other or for a rank that went on.
std::string why_unseen(const Context& context, const WaitCause& wait, UnseenMessages::Told told);

// Advises to look for what such a stop may be instead; of other findings, nothing.
void mention_unseen(const Context& context, const WaitCause& wait, Finding& finding);

}  // namespace lockstep::verify
