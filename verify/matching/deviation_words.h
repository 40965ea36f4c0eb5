// Sentences about a deviation, shared by the findings about calls and about batches.
#pragma once

#include <string>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

// As many ranks did one thing as the other, and nothing shows which are wrong.
bool is_tie(const Deviation& deviation);

// The deviation as one sentence, without its reason and its full stop: "rank 1 never issued
// all_reduce(4096 float32), which ranks 0, 2 issued as seq 5 of group world, step 1".
std::string difference_sentence(const Context& context, const Deviation& deviation);

// " The same happens 3 more times."; empty where it does not.
std::string repeat_sentence(const Deviation& deviation);

// The parameters of the deviation: for missing calls, all that the deviant left out in this batch.
std::vector<std::string> names_carried(const Context& context, const Deviation& deviation);

}  // namespace lockstep::verify
