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

// Explains a message without a partner: the peer never posted its side, or the waiting rank issued
// one message too many. A message in a batch with others is not one too many: its peer took part in
// the exchange.
Cause explain_message(const Context& context, const WaitPoint& message);

// Explains a message whose side on `rank` (a rank index) was left out. The rank may have posted
// those of later rounds, which match in its place.
Cause left_out_message(const Context& context, const WaitPoint& message, std::uint32_t rank);

// Explains a cycle over `points` by a message without a partner: a rank waits for a peer that went
// on to a collective with most of its group, which now waits for that rank. The rank that the
// collective lacks is not at fault. Nothing where the cycle is of another kind.
std::optional<Cause> explain_lost_message(const Context& context,
                                          const std::vector<std::size_t>& points);

// In a cycle, the message that sisters of `odd` post where its program parts from theirs, while
// `odd` waits in a collective: it is the only rank that parts from its sisters (part_from_sisters),
// and others in the cycle wait for it in that message. Null where there is none such.
const WaitPoint* message_of_sisters(const Context& context, const std::vector<std::size_t>& points,
                                    std::uint32_t odd);

// Whether the message in which a rank waits would be one more than any two other ranks exchanged in
// one direction, so that its program went further than theirs. As many as they: its peer is the one
// that lacks a message.
//
//   rank 0 sends 12, rank 1 receives 12 and sends 12, rank 2 waits for the 13th
//
// O(calls of all ranks). `point` must be of a message that lacks its peer.
bool is_one_message_more(const Context& context, const WaitPoint& point);

// Stages of a pipeline that wait to receive one message more than came in at the stage before,
// which has passed all of them on:
//
//   rank 0 sent 4, rank 1 received 4, sent 4 and waits for gradients, rank 2 waits for the fifth
//
// Neighbours that exchange messages have sent each other as many, or one less; they are no stages.
//
// Rank indices. O(calls of the ranks that the cycle's messages lack).
std::vector<std::uint32_t> expect_more_than_comes(const Context& context,
                                                  const std::vector<std::size_t>& points);

}  // namespace lockstep::verify
