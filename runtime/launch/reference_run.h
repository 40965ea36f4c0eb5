// A finished job beside one process that trains on all of its ranks' batches.
#pragma once

#include <optional>
#include <string>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/job/scenario.h"
#include "runtime/launch/job_runner.h"
#include "verify/compare_runs.h"
#include "verify/final_loss.h"

namespace lockstep {

struct ReferenceRun {
  std::string none;    // why there is nothing to compare with; the rest is empty then
  std::string folder;  // with the process's traces and log
  Comparison comparison;
  std::optional<FinalLoss> loss;  // nothing where one of the two recorded none of its last step
};

// Trains the reference (job/reference.h) in the folder "reference" of the run's, options.folder.
// Errors: as run_job; a reference that did not finish; a folder that cannot be made.
Result<ReferenceRun> run_reference(const Scenario& scenario, const JobOutcome& outcome,
                                   JobOptions options, Interrupts& interrupts);

}  // namespace lockstep
