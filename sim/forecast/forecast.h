// The result of a simulated training job: how long its steps take, and what its ranks do meanwhile.
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

// The time of one rank, in seconds. busy + exposed + idle is all of it except launches.
struct RankUse {
  double busy = 0;     // it computes
  double exposed = 0;  // it waits while one of its calls is carried out
  double idle = 0;     // it waits for other ranks to arrive
  double hidden = 0;   // a call is carried out while it computes; part of busy

  RankUse& operator+=(const RankUse& other);
};

// One rank in one step: from the end of the step before, including its checkpoint, or from the
// start.
struct StepUse {
  Picos begin, end;
  RankUse use;
};

// An interval of a rank's time, and what it does in it.
struct Interval {
  enum class Kind : std::uint8_t { computes, exposed, idle, call };
  Picos begin, end;
  Kind kind = Kind::computes;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// One step in full: the intervals that StepUse sums up.
struct StepTimeline {
  std::size_t step = 0;  // the measured one whose duration is nearest to the median
  struct Lane {
    std::vector<Interval> host;   // as issued: computes, exposed or idle; between them are launches
    std::vector<Interval> calls;  // while at least one call of the rank is carried out; disjoint
  };
  std::vector<Lane> classes;  // by class of the folding; empty: no rank ended a step
};

struct Forecast {
  StepTimes times;
  Picos step_time;  // the median of the measured steps
  // By class of the folding, summed over the measured steps: all except the first, if there are
  // several.
  std::vector<RankUse> classes;
  std::vector<std::vector<StepUse>> steps;  // by class and step: every step of `times`
  StepTimeline timeline;
  // What a rank sends in a measured step on its busiest link, and how much of it goes between
  // nodes: means over ranks and steps.
  double bytes = 0, bytes_between = 0;
  double calls = 0;  // per rank and step: mean
};

// `run` is the one that `program` was made from, with a span at the end of every step
// (sim/forecast/timed_run.h). `result` comes from execute() with record_issues and is not stuck.
// `layouts`: of the job's groups. O(steps of the different ranks · log).
Forecast forecast(const trace::Run& run, const RunProgram& program, const Folding& folding,
                  const ExecutionResult& result, const std::vector<GroupLayout>& layouts);

// FlopUse: how much of a machine's peak a job uses.
//
// PaLM (Chowdhery et al., 2022, arXiv 2204.02311, appendix B) defines two figures. Hardware FLOPs
// utilization (HFU) counts every operation that devices carry out, recomputation included. Model
// FLOPs utilization (MFU) counts only those that the model's forward and backward pass need. What
// was counted (trace/work_costs.h) are the matrix products and convolutions of the kernels that
// ran, so the figure here is HFU. The trainer recomputes nothing, so it equals MFU, except where
// dummy batches are computed.

struct FlopUse {
  double flops = 0;         // of all ranks in a step: mean
  double peak_seconds = 0;  // that a rank would take for its part at peak rates: mean
  // The share of the peak in steps of this length; 0 for no time.
  double share(double step_seconds) const {
    return step_seconds > 0 ? peak_seconds / step_seconds : 0;
  }
};

// `costs`: by rank; ranks that are alike share an object. Counts `count` steps after the first
// `skipped` ones (sim/forecast/training_steps.h). O(work of the different ranks + ranks).
FlopUse flop_use(const std::vector<const trace::RankCosts*>& costs, const Machine& machine,
                 std::size_t skipped, std::size_t count);

}  // namespace lockstep::sim
