// A small job whose ranks `lockstep calibrate` runs together, to see what that costs them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/calibrate_job.h"
#include "sim/forecast/machine_fit.h"

namespace lockstep {

class TogetherMeasure {
 public:
  // `job`, as CalibrationJob's, has more than a step.
  TogetherMeasure(std::string_view job, int ranks, const std::string& folder,
                  const CalibrateOptions& options, Interrupts& interrupts);

  Status count() { return job_.count(); }
  // Times the ranks one by one, and then runs them together. Errors: time_work's; a job that does
  // not end well, with its folder.
  Status look(int number);

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

// Of a run in which all-reduces were recorded by one machine's processes: bytes, and the time from
// the last rank's arrival, or the end of the call before in its group where that was later, to the
// last rank's completion. Calls that lack a time are left out. O(calls).
std::vector<sim::MeasuredCall> all_reduces_of(const Run& run);

// Of a recorded run, in seconds: the mean time between the ends of two steps, over the ranks; 0
// where there is none. O(events).
double mean_step_of(const Run& run);

}  // namespace lockstep
