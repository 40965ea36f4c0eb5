// Calls that some ranks wait in and others never issued: who is at fault?
//
// Either the call is missing on the one side, or it is one too many on the other. The majority
// decides; where as many wait as are missing, the past of the one that waits
// (verify/blocking/witnesses.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"

namespace lockstep::verify {

// The call in which ranks wait at `point`, as one that `deviants` left out. `point`: of a
// collective; `deviants`: rank indices, ascending, at least one.
Deviation missing_at(const Context& context, const WaitPoint& point,
                     std::vector<std::uint32_t> deviants);

// Whether a call that seems left out was one too many of those who wait in it: most of the group
// went on without them, or as many did and the past of those who wait has another call there, and
// this one nowhere. Not where the batches of those who went on lacked what the call carries.
bool is_one_too_many(const Context& context, const Deviation& missing);

// Makes that of it: who waits deviates from those who went on.
void turn_into_extra(Deviation& missing);

// Whether a message without its other side is the first of its kind that the rank ever made, as far
// as its trace tells.
bool is_new_kind_of_message(const Context& context, const WaitPoint& message);

// A message that has no other side: the peer never posted it, or the rank that waits in it made a
// message too many. One whose batch has other messages is none too many: its peer took part in the
// exchange.
Cause explain_message(const Context& context, const WaitPoint& message);

// A message without its other side, in a cycle over `points`: a rank waits for a peer that went on
// to a collective together with most of its group, which now waits for that rank. Who is left out
// of the collective is not at fault for it. Nothing: another kind of cycle.
std::optional<Cause> explain_lost_message(const Context& context,
                                          const std::vector<std::size_t>& points);

// A cycle in which only one call lacks ranks that never issued it, while all the others are there
// and merely queued: who never issued that one call left it out, or who issued it made one too
// many. (Where several calls lack ranks, each of them may just not have been reached.) `breaks`:
// the cycle's ranks' with their past.
std::optional<Cause> explain_left_out_call(const Context& context,
                                           const std::vector<std::size_t>& points,
                                           const std::vector<Break>& breaks);

// A cycle in which one rank left out a call that its past has there, while all the others went on
// as always; the call is one in which others of the cycle wait for it.
std::optional<Cause> explain_broken_habit(const Context& context,
                                          const std::vector<std::size_t>& points,
                                          const std::vector<Break>& breaks);

// What only a look at running processes needs (RankTrace::snapshot: Flight Recorder dumps): the
// calls are asynchronous, nobody's wait is recorded, and ranks are seen at different moments.
// What their devices show: find_device_stall() in blocking.h.

// True where any trace is a snapshot.
bool is_snapshot(const trace::Run& run);

// A few ranks wait in a call that nobody else issued: did they issue an extra call before, which
// paired with the others' next one? Source places stand in for what calls carry: where leaving out
// up to kMostExtra of the few's calls makes all that follow agree, they did. O(calls of the group).
std::optional<Cause> find_extra_before(const Context& context, const WaitCause& wait);
inline constexpr std::size_t kMostExtra = 8;

// Why a wait shows no fault: half of the group or more are not there, and have never made such a
// call before, so that the few may just be ahead. Empty: it shows one.
std::string may_be_ahead(const Context& context, const WaitCause& wait);

}  // namespace lockstep::verify
