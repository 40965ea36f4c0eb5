// A small job that `lockstep calibrate` looks at: its ranks one by one, counted once and timed
// several times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "cli/calibrate.h"
#include "runtime/job/scenario.h"
#include "sim/forecast/scenario.h"
#include "trace/work_costs.h"

namespace lockstep {

class CalibrationJob {
 public:
  // `job`: a scenario's text without its name and ranks. `folder` is made; the others are not
  // owned.
  CalibrationJob(std::string_view job, int ranks, std::string folder,
                 const CalibrateOptions& options, Interrupts& interrupts);

  // Writes the scenario and counts the ranks' work. Before all else. Errors: derive_ranks'.
  Status count();
  // Errors: time_work's.
  Status time(int look);

  const Scenario& scenario() const { return scenario_; }
  const std::string& folder() const { return folder_; }
  // What the rank works that is the first of its process, as each rank of a job is: later ones find
  // all of it in the caches. With the shortest times so far.
  const RankCosts& first() const { return derived_.costs.front(); }

  // The job on the machine's simulated clock, with the work as it was timed. Takes what was
  // counted: nothing else may be asked for any more. Errors: time_scenario's.
  Result<sim::TimedScenario> simulated(const sim::Machine& machine) &&;

 private:
  std::string text_, folder_;
  const CalibrateOptions* options_;
  Interrupts* interrupts_;
  Scenario scenario_;
  sim::DerivedRanks derived_;
};

}  // namespace lockstep
