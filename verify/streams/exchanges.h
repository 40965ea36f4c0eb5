// Messages counted round by round. Between two collectives that both ranks of a pair issue, one
// posts as many sends as the other posts receives. Where it does not, one of the two left out
// messages or posted too many, whatever pairs with them afterwards:
//
//   rank 0   send send send           recv recv recv        reduce | …
//   rank 1   recv send recv send recv send  recv send recv send send   reduce | …
//   rank 2   recv recv recv           send send send        reduce | …
//
// Rank 1 posts three of each kind to each side but two receives from rank 2.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/run.h"
#include "verify/replay/replay.h"

namespace lockstep::verify {

struct UnevenExchange {
  // What the rank did. Where it issued a collective too many, two of its rounds are one of its
  // partner's; where it left one out, it is the other way round.
  enum class Kind : std::uint8_t { messages, extra_collective, missing_collective };
  Kind kind = Kind::messages;
  // What singles out the rank.
  enum class Reason : std::uint8_t {
    all_pairs,   // every pair that disagrees has it in common
    proportion,  // no other round has its proportion of messages
    answers,     // all other pairs post as many messages one way as the other; it did not
    others,      // more ranks agree with its partner than with it
    newest,      // it posted more in the round that ranks are in; its peers fit all others
  } reason = Reason::all_pairs;
  std::uint32_t odd = 0;       // rank indices: the one at fault
  std::uint32_t partner = 0;   // and the one with which it disagrees
  bool odd_sends = false;      // the messages go from `odd` to `partner`
  std::uint32_t posted = 0;    // by `odd` in the round
  std::uint32_t expected = 0;  // by `partner` in the round
  CallRef shown;               // the last of these messages on the side that posted more
  // The collective of `odd` with which the round ends, and that of `partner`. One of the two may
  // not have come to it (kNoCall), and has posted more than the other already; with `newest`,
  // neither may.
  CallRef end, end_of_partner;
};

// The first round in which pairs of ranks disagree, if that singles out a rank:
//   - all pairs that disagree have it in common; or, of one pair,
//   - its messages are in a proportion to each other that no other round of any rank has, and
//     those of the partner are not; or
//   - all other pairs of the round post as many messages one way as the other, as activations are
//     answered by gradients, and so did the partner, and it did not; or
//   - more ranks agree with its partner, and with each other, than with it; ranks that post nothing
//     to each other in the round agree, too.
// Where no such round tells, the one in which ranks are: a rank that posted more in several
// channels than its peers, which agree with all others. Rounds count that a rank is known to have
// ended, where its peer has ended them too or has posted more, so that none of them is merely late.
// Nothing where rounds disagree from the start on: messages may cross a collective on purpose, as
// receives that are posted a step ahead do. Nothing without messages and collectives.
// O(calls · log, for each of at most 16 groups of a rank, + ranks · rounds · peers).
std::optional<UnevenExchange> find_uneven_exchange(const trace::Run& run);

}  // namespace lockstep::verify
