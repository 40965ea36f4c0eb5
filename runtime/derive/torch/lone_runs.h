// Ranks looked at without the others, one after the other in this process: what each would call.
// The stages of a pipeline, which need each other's messages, are looked at together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/lone_ranks.h"

namespace lockstep::runtime {

// Why ranks were not looked at.
struct LoneFailure {
  Error error;
  // By the scenario, which cannot be read or run; asked again, the answer is the same. Else a file
  // could not be read or written.
  bool refused = false;
};

// Trains each as a rank of its scenario's job, from the first step to the last: what it calls
// completes at once (instant_backend.h), and is in its trace. A rank whose program ends by an
// exception has a trace that ends so. `on_meta`: with tensors that have no values
// (runtime/derive/torch/meta_tensors.h). After each a line "alone: <number>" goes to standard
// output. Nothing: all were looked at.
std::optional<LoneFailure> run_alone(const std::vector<LoneRanks>& list, bool on_meta);

}  // namespace lockstep::runtime
