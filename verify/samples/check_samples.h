// Do the ranks train on the right data? Shards, order and pairing of the samples that the traces
// record (`data` lines).
#pragma once

#include <string>
#include <vector>

#include "verify/matching/explain_deviation.h"

namespace lockstep {

// O(samples log samples). What cannot be judged is added to `unknown`.
std::vector<Cause> check_samples(const Context& context, std::vector<std::string>& unknown);

}  // namespace lockstep
