// What the ranks of a simulated job hold in memory, on the simulated clock: the bytes that were
// counted while the ranks were derived (trace/work_costs.h), at the times that the machine gives
// them.
//
// How much memory a rank needs depends on its program alone; the machine decides when, and whether
// it fits. Devices are assumed to run kernels as the host issues them, so the memory of a kernel is
// counted while the simulated clock is in its segment of work.
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

// A segment of work: from where the rank continues after a call, wait, step, checkpoint or
// evaluation to the next one. Between two segments, while it waits, a rank holds what the first of
// them ended with.
struct MemorySegment {
  Picos begin, end;
  std::int64_t step = 0;  // the training step that it belongs to; -1: before the first
  // The event in the representative's trace that ends it: a call, wait or step, or the span that
  // timed_run() adds for a checkpoint or an evaluation.
  std::uint32_t event = 0;
  trace::SegmentMemory memory;
};

// The memory of ranks that do the same at the same times and hold the same: a class of the folding,
// or a part of one.
struct MemoryTimeline {
  std::vector<std::int32_t> ranks;      // ascending; the first is the representative
  std::vector<MemorySegment> segments;  // in order; empty if the rank never does any work
  std::size_t peak = 0;                 // index of the first segment with the largest peak

  // Requires at least one segment.
  const trace::MemoryUse& peak_use() const { return segments[peak].memory.peak; }
};

// The bytes that a device needs for `use`: times `fragmentation`, plus `reserved`.
double device_bytes(const trace::MemoryUse& use, const Machine& machine);

// `run` is the one that `program` was made from (sim/forecast/timed_run.h); `result` comes from
// execute() with record_issues and is not stuck. `costs`: for each of run.ranks, those that were
// timed. Empty if memory was not counted for some segment. In the order of the timelines' first
// ranks. O(ranks + segments of the different ranks).
std::vector<MemoryTimeline> memory_timelines(const trace::Run& run, const RunProgram& program,
                                             const Folding& folding, const ExecutionResult& result,
                                             const std::vector<const trace::RankCosts*>& costs);

struct MemoryForecast {
  std::vector<MemoryTimeline> classes;  // empty: memory was not counted
  // By class: the call after its peak, "all_reduce(image_proj.weight)".
  std::vector<std::string> peaks_before;
};

// `run` is the one that the timelines were made from.
MemoryForecast memory_forecast(std::vector<MemoryTimeline> timelines, const trace::Run& run);

// True if the ranks' device has enough memory for their peak, or if the machine does not say how
// much it has.
bool fits(const MemoryTimeline& timeline, const Machine& machine);
// The same for every rank; also true if nothing was counted.
bool fits(const MemoryForecast& memory, const Machine& machine);

}  // namespace lockstep::sim
