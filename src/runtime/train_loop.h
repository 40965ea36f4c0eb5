// The training loop of one rank.
#pragma once

#include "job/scenario.h"
#include "runtime/process_groups.h"
#include "runtime/record/recorder.h"
#include "runtime/result.h"

namespace lockstep {

// Trains as the scenario says, records every step's data, modalities and loss, and adds to `result`
// as it goes, so that what was reached is there when a step throws. Afterwards, where the scenario
// asks for it, rank 0 evaluates. Throws what LibTorch throws; the recorder's context then still
// holds the step.
void train(const Scenario& scenario, ProcessGroups& groups, Recorder& recorder,
           WorkerResult& result);

}  // namespace lockstep
