// The small jobs by which `lockstep calibrate` measures a machine: their ranks one by one, counted
// once and timed in several rounds; and run together, to measure what ranks cost one another.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/forecast/calibrate.h"
#include "runtime/job/scenario.h"
#include "sim/forecast/machine_fit.h"
#include "sim/forecast/scenario.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::runtime {

// A job whose ranks run one by one.
class CalibrationJob {
 public:
  // `job`: a scenario's text without its name and ranks. `folder` is made; the others are not
  // owned.
  CalibrationJob(std::string_view job, int ranks, std::string folder,
                 const CalibrateOptions& options, Interrupts& interrupts);

  // Writes the scenario and counts the ranks' work. Before all else. Errors: derive_ranks'.
  Status count();
  // Errors: time_work's.
  Status time(int round);

  const Scenario& scenario() const { return scenario_; }
  const std::string& folder() const { return folder_; }
  // What the rank works that is the first of its process, as each rank of a job is: later ones find
  // all of it in the caches. With the shortest times so far.
  const trace::RankCosts& first() const { return derived_.costs.front(); }

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

// A job whose ranks run one by one and together.
class TogetherMeasure {
 public:
  // `job`, as CalibrationJob's, has more than a step.
  TogetherMeasure(std::string_view job, int ranks, const std::string& folder,
                  const CalibrateOptions& options, Interrupts& interrupts);

  Status count() { return job_.count(); }
  // Times the ranks one by one, and then runs them together. Errors: time_work's; a job that does
  // not end well, with its folder.
  Status measure(int round);

  int ranks() const { return ranks_; }
  const std::vector<sim::MeasuredCall>& calls() const { return calls_; }  // of all runs
  double step_seconds() const;  // the mean of a run's steps but the first; the median of the runs
  // CalibrationJob's.
  Result<sim::TimedScenario> simulated(const sim::Machine& machine) && {
    return std::move(job_).simulated(machine);
  }

 private:
  CalibrationJob job_;
  int ranks_;
  const CalibrateOptions* options_;
  Interrupts* interrupts_;
  std::vector<sim::MeasuredCall> calls_;
  std::vector<double> took_;  // seconds of a step, of each run
};

// The all-reduces of a run that one machine's processes recorded: bytes, and the time to the last
// rank's completion from the last rank's arrival or, if that was later, from the end of the group's
// previous call. Calls that lack a time are left out. O(calls).
std::vector<sim::MeasuredCall> all_reduces_of(const trace::Run& run);

// The mean time between the ends of two steps of a recorded run, over the ranks, in seconds; 0 if
// there is none. O(events).
double mean_step_of(const trace::Run& run);

}  // namespace lockstep::runtime
