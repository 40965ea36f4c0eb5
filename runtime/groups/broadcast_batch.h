// Data synchronisation by broadcast: every rank trains on rank 0's batch.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/models/batch.h"
#include "runtime/record/recorder.h"

namespace lockstep {

// Replaces the batch by that of the group's rank 0, images and sentences sent as they are; the
// numbers of items and images and the pictures' side first. Collective. Throws what c10d throws.
void broadcast_batch(c10d::ProcessGroup& group, Recorder& recorder, Batch& batch);

}  // namespace lockstep
