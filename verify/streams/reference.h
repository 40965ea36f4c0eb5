// The reference: where the classes of a group diverge, which of the parties does what the program
// says?
//
// Mostly the largest one. Where a call is left out, numbers say little: batches without images may
// be most batches. Then batches, sister groups and the past are asked first.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/streams/alignment.h"

namespace lockstep::verify {

struct Reference {
  std::size_t party = 0;
  bool singled_out = true;        // false: neither party can be called the deviant one
  bool left_out_by_most = false;  // the larger party left out the call of this one
};

// Which of `parties` (two or more, as Alignment::split() makes them) is the reference. `is_first`:
// no deviation of the group was found before. break_tie() in the body lists the criteria.
//
// O(ranks of the parties), the search of a past for at most 64 ranks, and an edit for each class of
// the larger party where most may have left out a call.
Reference choose_reference(Alignment& alignment, const std::vector<Party>& parties, bool is_first);

}  // namespace lockstep::verify
