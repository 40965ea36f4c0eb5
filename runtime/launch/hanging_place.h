// Where a worker hung, in a line, from the stacks that it left (rank_<r>.stack).
#pragma once

#include <string>

namespace lockstep {

// The functions of the first thread that has a stack, innermost first, without their arguments and
// without frames that have no name: "poll < gloo::... < lockstep::TrainLoop::run", a few of them.
// Where the kernel kept the thread from telling, what is said instead. Empty: no such file.
std::string hanging_place(const std::string& stack_file);

}  // namespace lockstep
