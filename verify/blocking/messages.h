// Messages (sends and receives) in which a rank waits and whose other side nobody posted: who is at
// fault?
//
// Either the peer left its side out, or the waiting rank posted one too many. Sister groups are
// asked first (verify/blocking/witnesses.h), then the past of the waiting rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
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

// The rank of a cycle that left a message out by what it exchanged since the last collective of the
// group in which it waits: with the message in which its peer waits, each of the two would have
// sent and received as much from each neighbour, and without it the rank has not.
//
//   rank 1   recv(0) send(2) recv(2) send(0)   waits in all_reduce
//   rank 2   recv(1) send(3) send(1)           waits in all_reduce: it lacks recv(3)
//   rank 3   recv(2) send(2)                   waits in send(2)
//
// A rank index; nothing where there is none. O(calls since that collective).
std::optional<std::uint32_t> lacks_one_side(const Context& context,
                                            const std::vector<std::size_t>& points);

// Messages by sender and receiver (rank indices), as either side posted them.
struct MessageCounts {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> sent, received;
};

// Counts those whose sides both have a trace. O(calls of all ranks · log).
MessageCounts count_messages(const trace::Run& run);

// Whether the message in which a rank waits would be one more than any two other ranks exchanged in
// one direction: then its program went further than theirs. If it would be just as many, its peer
// left out a message. Nothing where no other two ranks exchange any, or pairs have different
// numbers of them.
//
//   rank 0 sends 12, rank 1 receives 12 and sends 12, rank 2 waits for the 13th
//
// O(calls of all ranks). `point` must be of a message that lacks its peer.
std::optional<bool> is_one_message_more(const Context& context, const WaitPoint& point);

// Stages of a pipeline that expect one message more than the stage before received, although that
// stage has passed all of its messages on:
//
//   rank 0 sent 4, rank 1 received 4, sent 4 and waits for gradients, rank 2 waits for the fifth
//
// Neighbours that have sent each other equally many messages, or one less, exchange data and are no
// stages.
//
// Nor a stage for which another one waits that would send it more.
//
// Returns rank indices. O(calls of the ranks that the cycle's messages lack).
std::vector<std::uint32_t> expect_more_than_comes(const Context& context,
                                                  const std::vector<std::size_t>& points);

// The rank of a cycle that waits alone in a collective while one neighbour waits to send to it and
// another one to receive from it: both count one message more than it does.
//
//   rank 0 waits in send to 1, rank 2 in receive from 1, rank 1 in all_reduce
//
// A rank index; none, or more than one such rank: nothing.
std::optional<std::uint32_t> left_out_between(const Context& context,
                                              const std::vector<std::size_t>& points);

// Explains messages of a round that two ranks count differently (streams/exchanges.h).
Cause explain_uneven_exchange(const Context& context, const UnevenExchange& uneven);

}  // namespace lockstep::verify
