// Does what a certificate says of one situation hold for every choice of every rank?
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "verify/checker/parts.h"
#include "verify/checker/statements.h"

namespace lockstep::verify::checked {

// By rank: the parts that it may do, into PartTable::all.
using Options = std::vector<std::set<std::uint32_t>>;

// Takes the `agree` and `meet` lines, and refuses unless
//   - every option of every member of a channel makes the stated calls there;
//   - splits of exchanges fit together, and are the same under all options of a rank;
//   - the order holds each stated meeting once, and no option waits for a meeting before it comes
//     to one that stands at the same place or earlier.
// `device`: an enqueued call of a group holds up whatever comes later. O(lines taken + options +
// items of the different options); memory follows the parts, whatever the lines say.
void check_situation(Statements& text, const PartTable& table, const Options& options, bool device);

}  // namespace lockstep::verify::checked
