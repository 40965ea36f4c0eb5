// Sisters: ranks in the same place of another group that is as large. The pipelines of a mesh, say,
// exchange the same messages side by side, so that one of them shows what another should do.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/context.h"

namespace lockstep {

// Whether ranks of other groups as large make calls like this one: then it is no stranger to the
// program. O(calls).
bool is_made_in_sister_groups(const Context& context, CallRef call);

// Those of the ranks in a cycle of messages whose messages part from their sisters', while all the
// others did as theirs. Nobody, where one has no sister or its sisters are divided. O(calls).
std::vector<std::uint32_t> part_from_sisters(const Context& context,
                                             const std::vector<std::size_t>& points);

}  // namespace lockstep
