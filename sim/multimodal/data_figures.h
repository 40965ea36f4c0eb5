// What the drawn samples of a plan's steps hold: tokens, items, and the FLOPs that they need.
#pragma once

#include "sim/multimodal/dealt_step.h"
#include "sim/multimodal/multimodal_plan.h"
#include "sim/multimodal/step_simulation.h"
#include "sim/multimodal/task_times.h"

namespace lockstep::sim {

// Adds a step to the means over plan.steps steps: samples, tokens, padding, cut, flops and items.
// The items' mean sizes are sums until finish_data().
void add_data(const MultimodalPlan& plan, const TowerTimes& towers, const DealtStep& step,
              SimulatedSteps& out);

// After the last step: kinds of items that never came are left out.
void finish_data(SimulatedSteps& out);

}  // namespace lockstep::sim
