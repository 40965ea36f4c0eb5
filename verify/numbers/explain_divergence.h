// Values that differ between ranks, in words.
#pragma once

#include <vector>

#include "verify/context.h"
#include "verify/numbers/divergence.h"
#include "verify/numbers/sync_calls.h"

namespace lockstep::verify {

// The finding of gradients, optimiser values, parameters or buffers that differ. For parameters
// the rule says what is known of the reason: param-divergence; unsynchronised-step where the calls
// show no synchronisation before the update; rank-local-decision where the synchronised gradients
// of that step were equal.
Cause explain_divergence(const Context& context, const ValueTable& table, const SyncCalls& calls,
                         const Divergence& d);

}  // namespace lockstep::verify
