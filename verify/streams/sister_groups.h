// What most sister groups did where the classes of a group diverge: the tensor-parallel groups of a
// mesh make the same calls.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "verify/streams/alignment.h"

namespace lockstep::verify {

// The one of the parties in `among` (indexes of `parties`) whose next call most sister groups made
// at this index. Sister groups have as many members as this one, of other ranks, and made the
// same calls up to here. Nothing where there are none, the vote is tied, or groups with missing
// traces could have turned it. O(64 groups · their classes).
std::optional<std::size_t> vote_of_sister_groups(const Alignment& alignment,
                                                 const std::vector<Party>& parties,
                                                 const std::vector<std::size_t>& among);

}  // namespace lockstep::verify
