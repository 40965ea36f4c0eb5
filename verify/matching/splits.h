// All-to-alls whose splits were not recorded: what all members give must be what all take.
#pragma once

#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// One cause per group, for the first all-to-all whose totals differ. Who is wrong cannot be told
// from totals: no culprits. Only where every member's trace is there. O(calls).
std::vector<Cause> check_exchange_totals(const Context& context);

}  // namespace lockstep::verify
