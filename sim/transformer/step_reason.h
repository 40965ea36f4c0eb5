// Why a step is not shorter, in a sentence: what takes the most of its time beside computing, and
// which change of the plan helps. For plans of a transformer and of several towers alike.
//
// Nothing here is estimated: the share is that of a part of the simulated step, and a change is
// named only where the step of the changed plan was simulated, too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/transformer/plan_forecast.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

// A part of a step in which nothing new is computed.
struct StepLoss {
  std::string key;   // the part's
  std::string to;    // in words: "the pipeline's bubble"
  double share = 0;  // of the step
};

// The largest one; of a step that only computes, one of nothing.
StepLoss largest_loss(const std::vector<ForecastPart>& time, double seconds);

// Another layout of the same model and batch, on as many ranks; `change` as in a plan's file:
// "tensor: 4". The batch is divided otherwise where a layer is.
struct LayoutChange {
  std::string change;
  TrainingPlan plan;
};

// Layouts in which what is lost to this part may be less. They pass workload_problem(), though they
// need not fit into memory, nor be faster.
std::vector<LayoutChange> layout_changes(std::string_view lost_to, const Transformer& model,
                                         const TrainingPlan& plan);

// What a plan gives, or the plan with a change.
struct TriedChange {
  std::string change;
  double tokens_per_second = 0;
  bool fits = true;
};

// "beside computing, most time goes to the pipeline's bubble (7.3 % of the GPUs'); pipeline.stages:
// 2 gives 3.1 % more tokens/s". A small loss is not said to limit the step. A change is advised if
// it gives more, and fits where the plan itself does.
std::string reason_sentence(const StepLoss& loss, const TriedChange& planned,
                            const std::vector<TriedChange>& tried);

// Of a transformer's plan; simulates a few more steps. Slow ranks, and experts that get more tokens
// than others, count as much as the step would be shorter without them.
std::string reason_of(const PlanForecast& forecast);

}  // namespace lockstep::sim
