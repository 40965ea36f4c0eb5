// Do the ranks agree on their numbers? Gradients, optimiser values, parameters and buffers that the
// traces record (`state` lines), judged against each other.
//
// The earliest value that is wrong is the cause; what differs after it follows from it and hangs
// below it: a gradient that was not synchronised, then the parameters, then everything.
#pragma once

#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// O(marks log marks + events). What cannot be judged is added to `unknown`; a doubt that the data
// cannot settle either way to `undecided`.
std::vector<Cause> check_numbers(const Context& context, std::vector<std::string>& unknown,
                                 std::vector<std::string>& undecided);

}  // namespace lockstep::verify
