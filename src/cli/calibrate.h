// Measuring this machine for `lockstep simulate`: how fast the shipped small models' work is, and
// what Gloo's all-reduce costs between its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "launch/interrupts.h"
#include "sim/machine/fit_machine.h"
#include "sim/machine/machine.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep {

struct CalibrateOptions {
  std::string worker;      // the worker program
  std::string folder;      // exists; left with what was derived and run
  std::string name;        // of the machine
  int ranks = 2;           // whose all-reduces are measured; at least 2
  std::int64_t cores = 1;  // that they share
  bool quiet = false;
};

struct Calibration {
  sim::Machine machine;
  sim::WorkRates work;
  std::size_t steps = 0;  // that the rates were fitted to
  std::size_t calls = 0;  // that the links were fitted to
};

// Looks at ranks alone, counting and then timing their work, and runs a job of `ranks` processes:
// about half a minute. Errors: workers that fail, the user's signal, measurements that do not fit.
Result<Calibration> calibrate(const CalibrateOptions& options, Interrupts& interrupts);

// Of a run in which all-reduces were recorded by one machine's processes: bytes, and the time from
// the last rank's arrival, or the end of the call before in its group where that was later, to the
// last rank's completion. Calls that lack a time are left out. O(calls).
std::vector<sim::MeasuredCall> all_reduces_of(const Run& run);

// What a rank's host computes in a step of a recorded run, waits taken off: in seconds, the median
// over the steps behind the first and the ranks; 0 where no step has times. O(events).
double busy_in_a_step(const Run& run);

// Gives what was counted the times of `timed` where these are shorter than those that it has, or it
// has none. Errors: they are not of one program.
Status keep_shortest(const RankCosts& timed, RankCosts& counted);

}  // namespace lockstep
