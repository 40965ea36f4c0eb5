// The picture of a training step, from the run of the engine that gave its figures: what each stage
// does when, and the chain of tasks and calls that determines how long the step takes.
#pragma once

#include <string>
#include <vector>

#include "sim/engine/step_program.h"

namespace lockstep::sim {

struct StepPicture {
  struct Stage {
    std::string name;
    std::vector<StepInterval> host;   // from 0 to the end of the step, without gaps
    std::vector<StepInterval> calls;  // when the calls that take time are carried out; may overlap
  };
  // The critical path by stage and kind of work, the longest first; sums up to `end`.
  struct PathSum {
    std::size_t stage = 0;
    StepWork::Kind kind = StepWork::Kind::forward;
    Picos time;
  };
  Picos end;
  std::vector<Stage> stages;  // of the replica where the critical path begins: the slowest
  std::vector<PathSum> path;

  Picos tasks_end() const;  // of the stages' last tasks
};

// `result`: of execute_step(step, true). `names`: of the stages. O(steps).
StepPicture draw_step(const StepProgram& step, const ExecutionResult& result,
                      const std::vector<std::string>& names);

}  // namespace lockstep::sim
