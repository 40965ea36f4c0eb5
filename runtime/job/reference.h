// The job that a scenario's distributed one is measured against: one process that trains on the
// union of all ranks' batches.
#pragma once

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep {

// The scenario of that process: no strategy to speak of, what is wrong on purpose put right, remedy
// and precision kept. Each rank's batch becomes a micro-batch (TrainLoop's `data_of`), so that
// BatchNorm and the losses see what the ranks saw. Errors: losses that need all ranks' features at
// once; batches that the ranks share out as they go; dropout; an average over the
// ranks with images alone.
Result<Scenario> reference_of(const Scenario& scenario);

}  // namespace lockstep
