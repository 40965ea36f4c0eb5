// The forecast of a plan: its time and where it goes, its memory, and what each figure is based on.
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
  std::string key;       // in JSON and CSV: "tensor_parallel"
  std::string what;      // in words: "tensor-parallel collectives"
  double value = 0;      // seconds or bytes
  std::string rests_on;  // what the figure is based on, in one sentence
};

struct PlanForecast {
  PlanFile plan;
  Calibration calibration;  // with the plan's gpus_per_node
  StepPrediction step;
  double tokens_per_second = 0;
  double samples_per_second = 0;
  // Shares of the GPUs' 16-bit peak (arXiv 2204.02311, appendix B): by the FLOPs that the model
  // needs, and with recomputation.
  double mfu = 0, hfu = 0;
  double bubble_share = 0;         // of the pipeline's time: mean over the stages
  std::vector<ForecastPart> time;  // seconds, summing up to the step's time; zeros are left out
  std::vector<ForecastPart>
      memory;  // bytes on a GPU of the fullest stage, summing up to memory_bytes

  double gpus() const { return static_cast<double>(plan.plan.ranks()); }
  // By how many bytes memory is exceeded; 0: it fits, or the GPU's memory is not known.
  double missing_bytes() const;
  // What all figures assume, in sentences.
  std::vector<std::string> basis() const;
};

// Errors: plan_cost()'s and predict_step()'s.
Result<PlanForecast> forecast_plan(const PlanFile& plan, const Calibration& calibration);

}  // namespace lockstep::sim
