// Ranks that went past a call in which others wait for them: they skipped it. Comparing streams
// does not show them where the stream of their group just ends.
#pragma once

#include <vector>

#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

// The deviations where some of the ranks at the root of a wait went past a call, the earliest
// first. A rank that skips its last all_reduce of a group looks like one that has not reached it;
// later steps, batches without a modality, and rounds without the call tell the two apart. O(points
// · ranks · calls of a rank).
std::vector<Deviation> passed_by_deviations(const Context& context, const WaitCause& wait);

// Explains the first of these deviations, of which there must be one, with those that are the same
// in sister groups.
Cause explain_passed_by(const Context& context, const std::vector<Deviation>& deviations);

}  // namespace lockstep::verify
