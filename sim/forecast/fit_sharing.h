// What cannot be seen in any part of a job alone: fitted to how long its steps take.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sim/engine/from_run.h"
#include "sim/machine/machine.h"
#include "trace/run.h"

namespace lockstep::sim {

// A job that was run, and its program, of a run that timed_run() made. Not owned.
struct MeasuredJob {
  const Run* run = nullptr;
  const RunProgram* program = nullptr;
  double step_seconds = 0;  // above 0: the mean over the steps but the first
};

// Sets the machine's contention and refill, so that the simulated steps of all jobs take as long as
// they did, by least squares of the logarithms of their ratio: by pattern search (Hooke and Jeeves,
// J. ACM 8(2), 1961) from what the machine has, some 40 simulations of each. Jobs whose ranks make
// more than kMostFittedHops hops are left out; where no others are, the machine stays as it is.
// `machine`: with cores. Errors: call_cost()'s.
inline constexpr std::int64_t kMostFittedHops = 1'000'000;
Status fit_sharing(const std::vector<MeasuredJob>& jobs, Machine& machine);

}  // namespace lockstep::sim
