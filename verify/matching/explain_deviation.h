// Deviations in words: one finding per cause, in the user's terms.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// The finding of one deviation: modality-divergence where the batches differ in the same way.
Cause explain_deviation(const Context& context, const Deviation& deviation);

// Splits of all-to-alls that do not fit together, which no comparison of two ranks shows.
// O(members²) per all-to-all that records splits, once per distinct one in a row.
std::vector<Cause> check_splits(const Context& context);

}  // namespace lockstep::verify
