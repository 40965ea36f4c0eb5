// What a simulated job of training steps came to: how long its steps take, and what its ranks do
// all the while.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "sim/forecast/training_steps.h"
#include "sim/machine/machine.h"
#include "sim/machine/work_time.h"
#include "trace/run.h"
#include "trace/work_costs.h"

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
  Picos step_time;  // sim/forecast/training_steps.h: the median
  // Of the folding's classes, over the steps that are measured: all but the first, where there are
  // several.
  std::vector<RankUse> classes;
  std::vector<std::vector<StepUse>> steps;  // by class and step: all of `times`
  // Sent by a rank in a measured step, on its busiest link: mean. Of it between nodes.
  double bytes = 0, bytes_between = 0;
  double calls = 0;  // of a rank in a step: mean
};

// `run` is the one that `program` was made of, with a span at every step's end
// (sim/forecast/timed_run.h); `result` is of execute() with record_issues, and not stuck. `places`:
// of the job's groups. O(steps of the different ranks · log).
Forecast forecast(const trace::Run& run, const RunProgram& program, const Folding& folding,
                  const ExecutionResult& result, const std::vector<GroupPlace>& places);

// How much of a machine's peak a job uses.
//
// PaLM (Chowdhery et al., 2022, arXiv 2204.02311, appendix B) tells two figures apart: hardware
// FLOPs utilization (HFU) counts every operation that devices carry out, rematerialisation
// included; model FLOPs utilization (MFU) those alone that the forward and backward pass of the
// model need. What was counted (trace/work_costs.h) is what kernels carry out, in matrix products
// and convolutions, so the figure here is HFU. The trainer rematerialises nothing, so that it is
// MFU as well, but where dummy batches are computed that no sample asked for.

struct FlopUse {
  double flops = 0;         // of all ranks in a step: mean
  double peak_seconds = 0;  // that a rank would take for its part at the peaks of its types: mean
  // Of a step that takes so long; of no time: 0.
  double share(double step_seconds) const {
    return step_seconds > 0 ? peak_seconds / step_seconds : 0;
  }
};

// `costs`: of every rank, repeated where one stands for several. Steps after the first `skipped`
// that a rank made, `count` of them: sim/forecast/training_steps.h. O(work of the different ranks +
// ranks).
FlopUse flop_use(const std::vector<const trace::RankCosts*>& costs, const Machine& machine,
                 std::size_t skipped, std::size_t count);

}  // namespace lockstep::sim
