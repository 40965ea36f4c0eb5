// Which calls of a program do not fit those that they meet.
//
// Gloo aborts the process, from a thread of its own, as soon as two ranks' bytes do not fit. What
// the ranks do until they wait for such a call has to be in their traces before.
#pragma once

#include <vector>

#include "trace/run.h"

namespace lockstep::runtime {

// By rank index and call: the members of the call's meeting do not agree in operation, size, type,
// root or splits, or a message has not the size of its receive. O(calls log calls), and for an
// all-to-all the square of its members.
std::vector<std::vector<bool>> find_disputes(const trace::Run& program);

// The groups whose members do not agree on who they are: by index of RankTrace::groups of the rank.
// They cannot be connected. (Lists that have no rank in common are different groups of one name.)
std::vector<std::vector<bool>> find_disputed_groups(const trace::Run& program);

}  // namespace lockstep::runtime
