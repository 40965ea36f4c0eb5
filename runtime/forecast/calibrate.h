// Measures this machine for `lockstep simulate`: the speed of the shipped small models' work, and
// the cost of Gloo's all-reduce between its ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/interrupts.h"
#include "base/result.h"
#include "sim/forecast/machine_fit.h"
#include "sim/machine/machine.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::runtime {

struct CalibrateOptions {
  std::string worker;      // the worker program
  std::string folder;      // exists; keeps what was derived and run
  std::string name;        // of the machine
  int ranks = 2;           // of the measured all-reduces; at least 2
  std::int64_t cores = 1;  // shared by the ranks
  int repeats = 3;         // of each measurement; the median or the shortest counts
  // Told before each measurement what it is: "ranks alone, round 2 of 3: job 5 of 14". Most take
  // one to five seconds.
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

struct Calibration {
  sim::Machine machine;
  sim::WorkRates work;
  std::size_t steps = 0;  // to which the rates were fitted
  std::size_t calls = 0;  // to which the links were fitted
};

// Runs ranks alone, first counting and then timing their work, and runs jobs of up to `ranks`
// processes. Takes more than a minute. Errors: workers that fail, the user's signal, measurements
// that cannot be fitted.
Result<Calibration> calibrate(const CalibrateOptions& options, Interrupts& interrupts);

}  // namespace lockstep::runtime
