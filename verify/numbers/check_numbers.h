// Compares the ranks' numbers: gradients, optimizer values, parameters and buffers that the traces
// record (`state` lines).
//
// The earliest wrong value is the cause. What differs later is its consequence: first a gradient
// that was not synchronised, then the parameters, then everything.
#pragma once

#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Returns the causes; empty if no values were recorded. Adds sentences to `unknown` about what
// could not be checked, and to `undecided` about what the values leave open. O(marks log marks +
// events).
std::vector<Cause> check_numbers(const Context& context, std::vector<std::string>& unknown,
                                 std::vector<std::string>& undecided);

}  // namespace lockstep::verify
