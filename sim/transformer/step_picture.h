// The picture of a plan's step, from the same run of the engine as its figures: what each stage
// does when, and the chain of tasks and calls that determines how long the step takes.
#pragma once

#include <vector>

#include "base/result.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::sim {

struct StepPicture {
  struct Stage {
    std::vector<StepStretch> host;   // from 0 to the end of the step, without gaps
    std::vector<StepStretch> calls;  // when the calls that take time are carried out; may overlap
  };
  Picos end;
  std::vector<Stage> stages;
  // The critical path by stage and kind of work, the longest first; sums up to `end`.
  std::vector<ForecastPart> path;
};

// Runs the step of a forecast once more. O(tasks). Errors: simulate_step()'s; never of a plan that
// has a forecast.
Result<StepPicture> draw_step(const PlanForecast& forecast);

}  // namespace lockstep::sim
