// Collectives in which some ranks wait and which others never issued: who is at fault?
//
// Either one side left the call out, or the other side issued one too many. The majority decides.
// If as many ranks wait as are missing, the past of a waiting rank decides
// (verify/blocking/witnesses.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"

namespace lockstep::verify {

// A deviation: `deviants` left out the call in which ranks wait at `point`. `point` must be of a
// collective; `deviants`: rank indices, ascending, at least one.
Deviation missing_at(const Context& context, const WaitPoint& point,
                     std::vector<std::uint32_t> deviants);

// `missing` says that a call was left out. Decides whether the ranks that wait in it issued one too
// many instead, and turns the deviation around (turn_around()) if
//   - most of the group went on without them, or
//   - as many went on as wait, and the past of those who wait has another call there and never had
//     this one.
// It stays a missing call where the batches of those who went on lacked the call's modality, and
// where a majority of ranks that run different programs waits in it; if just as many wait as went
// on, that decides nothing. If nothing decides, no rank is named.
void decide_fault(const Context& context, Deviation& missing);

// Whether most of the group left out the call at `point`. Evidence: they broke with their past
// where their programs diverge from that of a rank that waits, or most ranks outside the group
// issued such a call. `point` must be of a collective.
bool is_missing_by_most(const Context& context, const WaitPoint& point);

// Where the rank left out the call by its own past: the index of the call that it issued where its
// past predicts this one and what it issued came after such a call before, since it last made one
// like it; the number of its calls where it issued nothing more and does not wait, since a rank
// that waits may come to the call afterwards. Nothing where its past does not show it. Up to 256
// searches of a past.
std::optional<std::uint32_t> left_out_by_its_past(const Context& context, std::uint32_t rank,
                                                  const trace::Call& call);

// Explains a cycle in which a single call lacks ranks that never issued it, while all other calls
// were issued by all and are merely queued. The missing ranks left that call out, or the others
// issued one too many. (If several calls lack ranks, each may just not have been reached yet.)
// `breaks`: where the cycle's ranks broke with their past.
std::optional<Cause> explain_left_out_call(const Context& context,
                                           const std::vector<std::size_t>& points,
                                           const std::vector<Break>& breaks);

// Explains a cycle in which one rank broke with its past and all others went on as usual: it left
// out a call, in which the others wait for it, or issued one too many, in which it waits alone.
std::optional<Cause> explain_broken_habit(const Context& context,
                                          const std::vector<std::size_t>& points,
                                          const std::vector<Break>& breaks);

}  // namespace lockstep::verify
