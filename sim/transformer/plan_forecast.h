// What a plan comes to: time, where it goes, memory, and what each figure rests on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/transformer/plan_file.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// A part of a whole, in its unit.
struct ForecastPart {
  std::string key;       // of JSON and CSV: "tensor_parallel"
  std::string what;      // in words: "tensor-parallel collectives"
  double value = 0;      // seconds or bytes
  std::string rests_on;  // one sentence
};

struct PlanForecast {
  PlanFile plan;
  Calibration calibration;  // with the plan's gpus_per_node
  StepPrediction step;
  double tokens_per_second = 0;
  double samples_per_second = 0;
  // Shares of the GPUs' 16-bit peak (arXiv 2204.02311, appendix B): the FLOPs that the model needs,
  // and those with what is recomputed.
  double mfu = 0, hfu = 0;
  double bubble_share = 0;           // of the pipeline's time, mean over the stages
  std::vector<ForecastPart> time;    // seconds; together the step's time; without those that are 0
  std::vector<ForecastPart> memory;  // bytes of the fullest stage's GPUs; together memory_bytes

  double gpus() const { return static_cast<double>(plan.plan.ranks()); }
  // Bytes that are missing; 0: it fits, or what a GPU has is not known.
  double missing_bytes() const;
  // What holds of all figures, in sentences.
  std::vector<std::string> basis() const;
};

// Errors: plan_cost()'s and predict_step()'s.
Result<PlanForecast> forecast_plan(const PlanFile& plan, const Calibration& calibration);

}  // namespace lockstep::sim
