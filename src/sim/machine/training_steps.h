// Where the training steps of a simulated job lie in its programs and on its clock.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "trace/run.h"

namespace lockstep::sim {

// The places of the program's steps that end a training step: spans before `step` events, as
// timed_run() puts them. `events`: RunProgram::events of the rank's program.
std::vector<std::uint32_t> step_marks(const RankTrace& trace,
                                      const std::vector<std::uint32_t>& events);

// The same of the rank that stands for a class of the folding.
std::vector<std::uint32_t> step_marks(const Run& run, const RunProgram& program,
                                      const Folding& folding, std::uint32_t rank_class);

// When the last rank ended each step that all ranks ended.
std::vector<Picos> step_ends(const Run& run, const RunProgram& program, const Folding& folding,
                             const ExecutionResult& result);

// The median over the steps but the first, which arranges buffers; of one step its own; of none 0.
Picos step_time(const std::vector<Picos>& step_ends);

// The steps that figures are of: all but the first, where there are several.
struct MeasuredSteps {
  std::size_t first = 0, count = 0;
  Picos begin, end;

  double seconds() const { return (end - begin).seconds(); }
};
MeasuredSteps measured_steps(const std::vector<Picos>& step_ends);

}  // namespace lockstep::sim
