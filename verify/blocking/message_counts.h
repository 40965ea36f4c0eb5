// How many messages ranks exchanged, and whom the numbers accuse: micro-batches are sent on by each
// stage of a pipeline and come back as gradients, so that the numbers of neighbours agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// The operation of a message's other side: of a send, the receive.
trace::Op other_side(trace::Op op);

// The messages of a rank by peer and direction.
using PostedMessages = std::map<std::pair<trace::Rank, trace::Op>, std::size_t>;

// What the rank posted since the group's last collective before this call. O(calls since then).
PostedMessages exchanged_before(const Context& context, CallRef end, trace::GroupId group);

// Whether the rank posted as many messages to and from each peer: a whole number of micro-batches.
// Where messages go both ways to one peer, as activations and gradients do, they do so to each.
bool is_whole(const PostedMessages& exchange);

// The collective in which the peer of a message waits, if it lacks nobody but the rank that waits
// in the message; null otherwise.
const WaitPoint* collective_of_peer(const Context& context, const WaitPoint& message);

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
// Nor a stage for which another one waits that would send it more, or to which another one posted
// more than it received.
//
// Returns rank indices. O(calls of all ranks · log + messages of the cycle · channels).
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
