// The small jobs by which `lockstep calibrate` measures a machine. Their ranks run one by one,
// counted once and timed in several rounds; some jobs also run with all ranks at once, to measure
// their calls and how much the ranks slow each other down.
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
  // `job`: a scenario's text without its name and ranks. count() creates `folder`. `options` and
  // `interrupts` must outlive this object.
  CalibrationJob(std::string_view job, int ranks, std::string folder,
                 const CalibrateOptions& options, Interrupts& interrupts);

  // Writes the scenario and counts the ranks' work. Call it first. Errors: derive_ranks'.
  Status count();
  // Times the ranks' work. Errors: time_work's.
  Status time(int round);

  const Scenario& scenario() const { return scenario_; }
  const std::string& folder() const { return folder_; }
  // The work of the rank that ran first in its process, as every rank of a job does: later ones
  // find their code and data in the caches. With the shortest times so far.
  const trace::RankCosts& first() const { return derived_.costs.front(); }

  // Simulates the job on the machine, with the work as it was timed. Consumes the counts: no other
  // function may be called afterwards. Errors: time_scenario's.
  Result<sim::TimedScenario> simulated(const sim::Machine& machine) &&;

 private:
  std::string text_, folder_;
  const CalibrateOptions* options_;
  Interrupts* interrupts_;
  Scenario scenario_;
  sim::DerivedRanks derived_;
};

// A job that is measured in both ways: its ranks one by one, and all at once.
class JobMeasurement {
 public:
  // `job`: as CalibrationJob's, with two steps or more.
  JobMeasurement(std::string_view job, int ranks, const std::string& folder,
                 const CalibrateOptions& options, Interrupts& interrupts);

  Status count() { return job_.count(); }
  // Times the ranks one by one, then runs the job. Errors: time_work's; a job that does not
  // complete, with its folder.
  Status measure(int round);

  int ranks() const { return ranks_; }
  const std::vector<sim::MeasuredCall>& calls() const { return calls_; }  // of all runs
  double step_seconds() const;  // a run's mean without its first step; the median over the runs
  // CalibrationJob::simulated().
  Result<sim::TimedScenario> simulated(const sim::Machine& machine) && {
    return std::move(job_).simulated(machine);
  }

 private:
  CalibrationJob job_;
  int ranks_;
  const CalibrateOptions* options_;
  Interrupts* interrupts_;
  std::vector<sim::MeasuredCall> calls_;
  std::vector<double> step_seconds_;  // of each run
};

// The all-reduces of a run whose ranks are on one machine. A call's time begins when its last rank
// arrives or, if that is later, when the group's previous call ends; it ends with the last rank's
// completion. Calls that lack a time are left out. O(calls).
std::vector<sim::MeasuredCall> all_reduces_of(const trace::Run& run);

// The mean time between the ends of two consecutive steps, over all ranks of a recorded run, in
// seconds; 0 if no rank has two steps. O(events).
double mean_step_of(const trace::Run& run);

}  // namespace lockstep::runtime
