// What the ranks of an odd program did: the smallest edit after which their calls agree again with
// the usual program.
#pragma once

#include "verify/streams/odd_programs.h"
#include "verify/streams/rank_programs.h"

namespace lockstep::verify {

// Sets kind, count and is_certain, and sorts the deviants. False: no edit of up to 256 calls makes
// the rest agree, and what they did is a guess. O(edits tried · 32 calls that have to agree after
// each).
bool find_smallest_edit(RankPrograms& programs, OddProgram& odd);

}  // namespace lockstep::verify
