// Checks whether the ranks train on the right data: the shards, order and pairing of the samples
// that the traces record (`data` lines).
#pragma once

#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// Returns the causes. Adds what cannot be judged to `unknown`. O(samples log samples).
std::vector<Cause> check_samples(const Context& context, std::vector<std::string>& unknown);

}  // namespace lockstep::verify
