// What the ranks of a simulated job hold in memory, on the simulated clock: the bytes that were
// counted while they were derived (trace/work_costs.h), at the times that the machine gives them.
//
// What memory a rank needs depends on its program alone, not on the machine: only when, and whether
// it fits. Devices are taken to run what their host gives them as it comes, so that a kernel's
// memory is there while the simulated clock is in its stretch of work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "sim/machine/machine.h"
#include "trace/memory_use.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::sim {

// A stretch of work: from where the rank goes on after a call, wait, step, checkpoint or evaluation
// to the next one.
// Between two stretches, while it waits, a rank holds what the first of them ended with.
struct MemoryStretch {
  Picos begin, end;
  std::int64_t step = 0;  // the training step in which it was done; -1: before the first
  // Of the representative's trace: the call, wait or step that ends it, or the span, of which
  // timed_run() puts one where a checkpoint was saved or the model evaluated.
  std::uint32_t event = 0;
  trace::StretchMemory memory;
};

// Of ranks that do the same at the same times and hold the same: a class of the folding, or a part
// of one.
struct MemoryTimeline {
  std::vector<std::int32_t> ranks;       // ascending; the first is the representative
  std::vector<MemoryStretch> stretches;  // in order; none where the rank never comes to any
  std::size_t peak = 0;                  // the first of the stretches with the largest peak

  // Valid where there are stretches.
  const trace::MemoryUse& peak_use() const { return stretches[peak].memory.peak; }
};

// What a device must have for `use`: `fragmentation` times as much, and what is `reserved`.
double device_bytes(const trace::MemoryUse& use, const Machine& machine);

// `run` is the one that `program` was made of (sim/forecast/timed_run.h), `result` is of execute()
// with record_issues, and not stuck. `costs`: of each of run.ranks, those that were timed. Nothing
// where memory was not counted: any stretch lacks it. In the order of the timelines' first ranks.
// O(ranks + stretches of the different ranks).
std::vector<MemoryTimeline> memory_timelines(const trace::Run& run, const RunProgram& program,
                                             const Folding& folding, const ExecutionResult& result,
                                             const std::vector<const trace::RankCosts*>& costs);

struct MemoryForecast {
  std::vector<MemoryTimeline> classes;  // none: memory was not counted
  // Of each class: what its peak comes before, in words: "all_reduce(image_proj.weight)".
  std::vector<std::string> peaks_before;
};

// `run` is the one that the timelines were made of.
MemoryForecast memory_forecast(std::vector<MemoryTimeline> timelines, const trace::Run& run);

// Whether the ranks' device has what they need at their peak; true where the machine does not say
// how much there is.
bool fits(const MemoryTimeline& timeline, const Machine& machine);
// Whether every rank's device has what it needs; true where the machine does not say how much there
// is, or nothing was counted.
bool fits(const MemoryForecast& memory, const Machine& machine);

}  // namespace lockstep::sim
