// The reference: where the classes of a group diverge, which of the parties does what the program
// says?
//
// Usually the largest one. If a call is left out, the number of ranks says little, because most
// batches may have no images. Then the batches, sister groups and the past decide first.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/streams/alignment.h"

namespace lockstep::verify {

struct Reference {
  std::size_t party = 0;
  bool singled_out = true;        // false: nothing shows which party deviates
  bool left_out_by_most = false;  // the larger party left out the call of this one
};

// Which of `parties` (two or more, from Alignment::split()) is the reference. `is_first`: this is
// the first deviation that is found in the group. break_tie() lists the criteria.
//
// O(ranks of the parties), the search of a past for at most 64 ranks, and an edit for each class of
// the larger party where most may have left out a call.
Reference choose_reference(Alignment& alignment, const std::vector<Party>& parties, bool is_first);

}  // namespace lockstep::verify
