// Selects the calls of a run that a program keeps, so that the kept calls still match each other.
//
// Collectives match by their index in the group's sequence, messages by their index in their
// channel (source, destination, tag, group). Leaving out whole collectives and whole messages does
// not change how the others match; leaving out one side shifts everything after it. So these are
// left out:
//
// - Calls that some member's bounded recorder lost: in each group, all before the first call that
//   every member's recorder kept, by the recorders' own numbers. (No messages: either both sides
//   have the same number of them, or it is not known which belong together.)
// - With `last`: each rank's first calls, so that `last` are left; and then fewer, until every
//   collective and message before the cut is whole, and every training step after it. Such a cut
//   is what a consistent snapshot is to a distributed program (Chandy and Lamport, 1985). Cuts only
//   move back, and moving one back never removes the reason to move another. So the result does
//   not depend on the order, and the process ends, at the latest with nothing left out.
//
// O(calls · members of their group · log).
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// By rank index and call: whether it is kept. `last`: 0 for all. Errors: streams that begin in the
// middle without numbers, or with one side of their messages; with `last`, receives from any
// source, because it is not known which message they took.
Result<std::vector<std::vector<bool>>> kept_calls(const trace::Run& run, std::size_t last);

}  // namespace lockstep::runtime
