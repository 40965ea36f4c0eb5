// Which calls of a run a program keeps, so that what is kept still fits together.
//
// Calls of a group meet by their place in its sequence, messages by their place in their channel
// (source, destination, tag, group). Leaving out whole meetings and whole messages changes none of
// the others; leaving out one side of them moves everything behind it. So what is left out is
//
// - what some member's bounded recorder lost: of each group all in front of the first call that
//   every member's recorder kept, by the recorder's own numbers. (Of messages nothing: either as
//   many of both sides are there, or it is not known which belong together);
// - with `last`: from each rank's beginning as many calls that so many are left, and then fewer,
//   until every meeting and every message in front of the cut is whole, and every training step
//   behind it. Such a cut is what a consistent snapshot is to a distributed program (Chandy and
//   Lamport, 1985). Cuts only move back, which keeps every reason for moving them: so the end is
//   the same in whatever order they are, and leaving out nothing is an end.
//
// O(calls · members of their group · log).
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// By rank index and call. `last`: 0 for all.
// Errors: streams that begin in the middle without numbers, or with one side of their messages;
// with `last`, receives from any source, whose messages nobody can tell.
Result<std::vector<std::vector<bool>>> kept_calls(const trace::Run& run, std::size_t last);

}  // namespace lockstep::runtime
