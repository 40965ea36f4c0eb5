// What a simulated job of training steps came to: how long its steps take, and what its ranks do
// all the while.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "sim/forecast/training_steps.h"
#include "sim/machine/work_time.h"
#include "trace/run.h"

namespace lockstep::sim {

// Of one rank, in seconds. busy + exposed + idle is all of its time but for launches.
struct RankUse {
  double busy = 0;     // it computes
  double exposed = 0;  // it waits while one of its calls is carried out
  double idle = 0;     // it waits for other ranks to come
  double hidden = 0;   // a call is carried out while it computes

  RankUse& operator+=(const RankUse& other);
};

// Of one rank in one step: from the end of its step before and the checkpoint saved after that, or
// from its start.
struct StepUse {
  Picos begin, end;
  RankUse use;
};

struct Forecast {
  StepTimes times;
  Picos step_time;  // sim/machine/training_steps.h: the median
  // Of the folding's classes, over the steps that are measured: all but the first, where there are
  // several.
  std::vector<RankUse> classes;
  std::vector<std::vector<StepUse>> steps;  // by class and step: all of `times`
  // Sent by a rank in a measured step, on its busiest link: mean. Of it between nodes.
  double bytes = 0, bytes_between = 0;
  double calls = 0;  // of a rank in a step: mean
};

// `run` is the one that `program` was made of, with a span at every step's end
// (sim/machine/timed_run.h); `result` is of execute() with record_issues, and not stuck. `places`:
// of the job's groups. O(steps of the different ranks · log).
Forecast forecast(const Run& run, const RunProgram& program, const Folding& folding,
                  const ExecutionResult& result, const std::vector<GroupPlace>& places);

}  // namespace lockstep::sim
