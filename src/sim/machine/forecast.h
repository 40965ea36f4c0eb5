// What a simulated job of training steps came to: how long its steps take, and what its ranks do
// all the while.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "trace/run.h"

namespace lockstep::sim {

// Of one rank, from the end of its first step (of its start, where there is one step) to the end of
// its last, in seconds. busy + exposed + idle is all of it but for launches.
struct RankUse {
  double busy = 0;     // it computes
  double exposed = 0;  // it waits while one of its calls is carried out
  double idle = 0;     // it waits for other ranks to come
  double hidden = 0;   // a call is carried out while it computes
};

struct Forecast {
  std::vector<Picos> step_ends;  // when the last rank ended each step that all ranks ended
  Picos step_time;               // the median over the steps but the first; of one step its own
  std::vector<RankUse> classes;  // of the folding's classes
  double bytes = 0;              // sent by a rank in a step, on its busiest link: mean
  double calls = 0;              // of a rank in a step: mean
};

// `run` is the one that `program` was made of, with a span at every step's end
// (sim/machine/timed_run.h); `result` is of execute() with record_issues, and not stuck.
// O(steps of the different ranks · log).
Forecast forecast(const Run& run, const RunProgram& program, const Folding& folding,
                  const ExecutionResult& result);

}  // namespace lockstep::sim
