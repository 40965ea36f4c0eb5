// Finds the calls of a program that do not fit their partners.
//
// Gloo aborts the process, from its own thread, as soon as two ranks' bytes differ. So everything
// that the ranks do until they wait for such a call must be in their traces before the call reaches
// Gloo.
#pragma once

#include <vector>

#include "trace/run.h"

namespace lockstep::runtime {

// By rank index and call: whether the members of its collective disagree in operation, size, type,
// root or splits, or a message and its receive have different sizes. O(calls log calls); for an
// all-to-all, quadratic in its members.
std::vector<std::vector<bool>> find_disputes(const trace::Run& program);

// The groups whose members disagree about the members, by rank index and index in
// RankTrace::groups. They cannot be connected. (Lists without a common rank are different groups of
// the same name.)
std::vector<std::vector<bool>> find_disputed_groups(const trace::Run& program);

}  // namespace lockstep::runtime
