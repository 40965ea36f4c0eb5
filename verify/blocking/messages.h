// Messages (sends and receives) in which a rank waits and whose other side nobody posted: who is at
// fault?
//
// Either the peer left its side out, or the waiting rank posted one too many. Sister groups are
// asked first (verify/blocking/witnesses.h), then the past of the waiting rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"

namespace lockstep::verify {

// Whether a message without a partner is the first of its kind in the rank's trace.
bool is_new_kind_of_message(const Context& context, const WaitPoint& message);

// Explains a message without a partner: the waiting rank left out the collective before it, in
// which the peer waits; the peer never posted its side; or the waiting rank issued one message too
// many. A message in a batch with others is not one too many: its peer took part in the exchange.
Cause explain_message(const Context& context, const WaitPoint& message);

// Explains a message without a partner where nothing shows which side is at fault: names nobody.
Cause explain_message_of_either(const Context& context, const WaitPoint& message);

// Explains a message whose side on `rank` (a rank index) was left out. The rank may have posted the
// message of the next round, which then matched instead.
Cause left_out_message(const Context& context, const WaitPoint& message, std::uint32_t rank);

// Whether a rank that lacks its side of the message went past the place for it: where its past
// predicts it, it issued another call; or of its rounds, one has such a message less than the
// others; or the message is the first of its kind, and both ranks issued a collective of one group
// after it. Then the rank is not just late. O(calls of the rank), and up to 256 searches of a past.
bool went_past_message(const Context& context, const WaitPoint& message, std::uint32_t rank);

// The message of an earlier step in which a rank waits that is missing at `message`, if the rank
// that waits there posted fewer of its other sides up to that step: it left one out and went on.
// Steps must be recorded; null where there is none. O(calls of the two ranks).
//
//   rank 0   step 2: send recv send         step 3: send, waits for rank 1, which has not come
//   there rank 1   step 2: recv send recv send                  waits for the receive of rank 0
const WaitPoint* awaited_since_earlier_step(const Context& context, const WaitPoint& message);

// The message in which the rank that is missing at `message` waits, if it issued nothing after it
// and the rank that waits at `message` posted its other side behind that call. Each posted the two
// messages in an order of its own, and either may have left one out. Null where it is not so.
//
//   rank 0   send  recv           recv is open, and nothing comes after it
//   rank 1   recv  recv  send     its second recv is open, before the other side of rank 0's
const WaitPoint* crossed_message(const Context& context, const WaitPoint& message);

// Explains a cycle over `points` by a message without a partner: rank A waits in the message for
// rank B, which went on to a collective with most of its group; the collective now waits for A. So
// B is at fault, not A. Nothing where the cycle is of another kind.
std::optional<Cause> explain_lost_message(const Context& context,
                                          const std::vector<std::size_t>& points);

// The message that the rank `odd` of a cycle left out. Its sisters post that message at the point
// where its program diverges from theirs; `odd` waits in a collective instead, and others in the
// cycle wait for it in the message. `odd` must be the only rank that deviates from its sisters
// (ranks_unlike_sisters). Null where there is no such message.
const WaitPoint* message_of_sisters(const Context& context, const std::vector<std::size_t>& points,
                                    std::uint32_t odd);

}  // namespace lockstep::verify
