// Runs ranks without the others, one after the other in this process. The stages of a pipeline,
// which need each other's messages, run together.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "runtime/job/lone_ranks.h"

namespace lockstep::runtime {

// Why ranks were not run.
struct LoneFailure {
  Error error;
  // True: the scenario cannot be read or run, so trying again is useless. False: a file could not
  // be read or written.
  bool refused = false;
};

// Trains each as a rank of its scenario's job, from the first step to the last. Its calls complete
// at once (instant_backend.h) and are recorded. If its program raises an exception, the trace ends
// with it. Ranks that are `answered` are of one job, and run again where one's answers to the
// others matter (answers.h). `on_meta`: with tensors without values
// (runtime/derive/torch/meta_tensors.h). After each entry the line "alone: <number>" is printed to
// standard output. Returns nothing if all were run.
std::optional<LoneFailure> run_alone(const std::vector<LoneRanks>& list, bool on_meta);

}  // namespace lockstep::runtime
