// Deviations in words: one finding per cause, in the user's terms.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep {

// A finding together with what later analyses need to hang consequences below it.
struct Cause {
  Finding finding;
  std::vector<std::uint32_t> deviants;  // rank indices, ascending; also where no culprit is named
  std::size_t group = SIZE_MAX;         // SIZE_MAX: none
  std::uint64_t seq = 0;
  std::int32_t step = kNone;
  SignatureId call;       // of a deviation: the call at which the ranks part
  bool can_block = true;  // false: it makes numbers wrong but keeps nobody waiting
};

// The finding of one deviation: modality-divergence where the batches differ in the same way.
Cause explain_deviation(const Context& context, const Deviation& deviation);

// Splits of all-to-alls that do not fit together, which no comparison of two ranks shows.
// O(members²) per all-to-all that records splits, once per distinct one in a row.
std::vector<Cause> check_splits(const Context& context);

}  // namespace lockstep
