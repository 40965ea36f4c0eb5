// Calls in which some ranks wait and which others never issued: who is at fault?
//
// Either the call is missing on one side, or it is one too many on the other. The majority decides.
// Where as many ranks wait as are missing, the past of a waiting rank decides
// (verify/blocking/witnesses.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

// A deviation: `deviants` left out the call in which ranks wait at `point`. `point` must be of a
// collective; `deviants`: rank indices, ascending, at least one.
Deviation missing_at(const Context& context, const WaitPoint& point,
                     std::vector<std::uint32_t> deviants);

// Decides whether a call that seems left out stays so or is one too many of the ranks that wait in
// it, which then deviate from those who went on: where most of the group went on without them; or
// as many did, and in the past of those who wait, another call came there and this one nowhere. It
// stays so where the batches of those who went on lacked the call's modality. Where nothing tells,
// nobody is singled out.
void decide_fault(const Context& context, Deviation& missing);

// Whether the ranks that lack the call at `point` are most of its group, and left it out: they
// broke with their past where they part from one that waits in it, or most ranks beside the group
// made such a call. `point` must be of a collective.
bool is_missing_by_most(const Context& context, const WaitPoint& point);

// Whether a message without a partner is the first of its kind in the rank's trace.
bool is_new_kind_of_message(const Context& context, const WaitPoint& message);

// Explains a message without a partner: the peer never posted its side, or the waiting rank issued
// one message too many. A message in a batch with others is not one too many: its peer took part in
// the exchange.
Cause explain_message(const Context& context, const WaitPoint& message);

// Explains a cycle over `points` by a message without a partner: a rank waits for a peer that went
// on to a collective with most of its group, which now waits for that rank. The rank that the
// collective lacks is not at fault. Nothing where the cycle is of another kind.
std::optional<Cause> explain_lost_message(const Context& context,
                                          const std::vector<std::size_t>& points);

// Explains a cycle in which a single call lacks ranks that never issued it, while all other calls
// were issued by all and are merely queued. The missing ranks left that call out, or the others
// issued one too many. (If several calls lack ranks, each may just not have been reached yet.)
// `breaks`: where the cycle's ranks broke with their past.
std::optional<Cause> explain_left_out_call(const Context& context,
                                           const std::vector<std::size_t>& points,
                                           const std::vector<Break>& breaks);

// Explains a cycle in which one rank left out a call that its past predicts, while all others went
// on as usual; others in the cycle wait for it in that call.
std::optional<Cause> explain_broken_habit(const Context& context,
                                          const std::vector<std::size_t>& points,
                                          const std::vector<Break>& breaks);

// Explains a cycle by a message that a rank left out, as its sisters show: the only one that parts
// from them (part_from_sisters). Others in the cycle wait for it in that message.
std::optional<Cause> explain_message_of_sisters(const Context& context,
                                                const std::vector<std::size_t>& points,
                                                std::uint32_t odd);

// The rest is for snapshots of running processes (RankTrace::snapshot: Flight Recorder dumps).
// There, calls are asynchronous, no waits are recorded, and ranks are seen at different moments.
// See also find_device_stall() in blocking.h.

// Where ranks of a cycle part, and which of the two does the unusual: of a rank that waits and one
// that it lacks. The first of `points` that tells; only collectives. O(points · 64 · calls).
std::optional<Parting> parting_in_cycle(const Context& context,
                                        const std::vector<std::size_t>& points);

// Where most ranks of a cycle broke with their past and those that they wait for did not
// (most_broke_with_the_past). The first of `points` that tells, of the first 8; only collectives.
std::optional<Parting> most_broke_in_cycle(const Context& context,
                                           const std::vector<std::size_t>& points);

// Explains it as a call left out, or as one too many. Nothing where it may be another order.
std::optional<Cause> explain_parting(const Context& context, const Parting& parting);

// Explains ranks that seem to hang outside of any call while others wait for them in `point`, where
// their programs show something else: they parted before that call, or the waiting ranks issued one
// that never came before. Nothing where they just stopped, and where the recording starts in
// mid-run. O(64 · calls).
//
//   rank 0   a b c | a b c           rank 0 seems to hang before its third b; in fact rank 1 issued
//   rank 1   a b c | a b b c         one b too many
std::optional<Cause> explain_other_path(const Context& context, const WaitPoint& point,
                                        const std::vector<std::uint32_t>& idle);

// Whether any trace is a snapshot.
bool is_snapshot(const trace::Run& run);

// A few ranks wait in a call that nobody else issued: did they issue an extra call before, which
// was paired with the others' next one? Source locations tell calls apart, since dumps record no
// parameters. If leaving out up to kMostExtra calls of the few makes all later ones agree, those
// are the extra calls:
//
//   few   a.py:1  a.py:5  a.py:2  a.py:3        without a.py:5 the two agree
//   many  a.py:1  a.py:2  a.py:3
//
// O(calls of the group).
std::optional<Cause> find_extra_before(const Context& context, const WaitCause& wait);
inline constexpr std::size_t kMostExtra = 8;

// Why a wait may be no fault: at least half of the group is missing and never issued such a call
// before, so the few may just be ahead. Empty where the wait is a fault.
std::string may_be_ahead(const Context& context, const WaitCause& wait);

}  // namespace lockstep::verify
