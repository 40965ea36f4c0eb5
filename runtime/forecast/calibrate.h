// Measuring this machine for `lockstep simulate`: how fast the shipped small models' work is, and
// what Gloo's all-reduce costs between its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "sim/forecast/machine_fit.h"
#include "sim/machine/machine.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::runtime {

struct CalibrateOptions {
  std::string worker;      // the worker program
  std::string folder;      // exists; left with what was derived and run
  std::string name;        // of the machine
  int ranks = 2;           // whose all-reduces are measured; at least 2
  std::int64_t cores = 1;  // that they share
  int repeats = 3;         // each measurement is made so often; the median or the shortest counts
  bool quiet = false;
};

struct Calibration {
  sim::Machine machine;
  sim::WorkRates work;
  std::size_t steps = 0;  // that the rates were fitted to
  std::size_t calls = 0;  // that the links were fitted to
};

// Looks at ranks alone, counting and then timing their work, and runs jobs of up to `ranks`
// processes: more than a minute. Errors: workers that fail, the user's signal, measurements that do
// not fit.
Result<Calibration> calibrate(const CalibrateOptions& options, Interrupts& interrupts);

}  // namespace lockstep::runtime
