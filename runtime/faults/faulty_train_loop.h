// Deliberate mistakes in the training loop: Fault::clip_before_sync, Fault::clip_local_norm,
// Fault::local_overflow, Fault::barrier_on_rank_0 and Fault::zero_grad_forgotten.
#pragma once

#include <memory>

#include "runtime/train/train_loop.h"

namespace lockstep::runtime {

// The loop that trains the scenario, with its fault if it has one of these. Arguments and
// exceptions are those of TrainLoop's constructor. Other faults are implemented in the strategy,
// the remedy or the data.
std::unique_ptr<TrainLoop> make_train_loop(const Scenario& scenario, ProcessGroups& groups,
                                           Recorder& recorder, WorkerResult& result,
                                           StepLog* log = nullptr,
                                           const Scenario* data_of = nullptr);

}  // namespace lockstep::runtime
