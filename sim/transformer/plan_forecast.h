// The forecast of a plan: its time and where it goes, its memory, and what each figure is based on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/engine/step_picture.h"
#include "sim/transformer/plan_file.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// Four of five measured peaks of memory (torchtitan's seven, to which nothing was fitted)
// are within this share of the prediction.
inline constexpr double kMemorySpread = 0.09;

// A part of a whole, in its unit.
struct ForecastPart {
  std::string key;       // in JSON and CSV: "tensor_parallel"
  std::string what;      // in words: "tensor-parallel collectives"
  double value = 0;      // seconds or bytes
  std::string rests_on;  // what the figure is based on, in one sentence
};

// What a job needs of a GPU, and what that has.
struct MemoryNeed {
  double bytes = 0;          // of the fullest GPU
  std::optional<Bytes> gpu;  // the plan's, else the machine's; empty: not known
  // By how many bytes it is exceeded; 0: it fits, or is not known.
  double missing() const;
  // True if so much is missing that the error of the memory model does not explain it.
  bool surely_too_large() const { return missing() > kMemorySpread * bytes; }
};

// Four of five measured steps of this prediction take between these; from the spread of the
// calibration.
struct StepRange {
  double least = 0, most = 0;  // seconds
};
StepRange step_range(double seconds, const CostParameters& cost);

struct PlanForecast {
  PlanFile plan;
  Calibration calibration;  // with the plan's gpus_per_node
  StepPrediction step;
  double tokens_per_second = 0;
  double samples_per_second = 0;
  // Shares of the GPUs' 16-bit peak (arXiv 2204.02311, appendix B): by the FLOPs that the model
  // needs, and with recomputation.
  double mfu = 0, hfu = 0;
  double bubble_share = 0;           // of the pipeline's time: mean over the stages
  std::vector<ForecastPart> time;    // seconds, summing up to the step's time; zeros are left out
  std::vector<ForecastPart> memory;  // bytes on a GPU of the fullest stage, summing up to the need
  StepRange range;
  MemoryNeed need;
  // If the plan says how often GPUs fail (sim/forecast/goodput.h), in seconds.
  struct Goodput {
    double mtbf = 0;      // of the whole job
    double interval = 0;  // work between two checkpoints, at least a step
    double best = 0, young = 0, daly = 0;
    double share = 0;  // of the time that is progress
  };
  std::optional<Goodput> goodput;

  double gpus() const { return static_cast<double>(plan.plan.ranks()); }
  // What all figures assume, in sentences.
  std::vector<std::string> basis() const;
};

// What a calibration's interval rests on, in a sentence.
std::string interval_basis(const Calibration& calibration);

// The goodput of a job on this many GPUs, whose checkpoints come between its steps.
PlanForecast::Goodput goodput_of(const PlanFile::Failures& failures, double gpus,
                                 double step_seconds);

// What the times of a step with ZeRO-1 or ZeRO-2 rest on, in a sentence; empty where there is
// nothing to say. `overlapped`: the exchange of gradients is.
std::string zero_basis(const TrainingPlan& plan, bool overlapped);

// Errors: plan_cost()'s and predict_step()'s.
Result<PlanForecast> forecast_plan(const PlanFile& plan, const Calibration& calibration);

// The step of a forecast, run once more. O(tasks). Errors: simulate_step()'s; never of a plan that
// has a forecast.
Result<StepPicture> draw_step(const PlanForecast& forecast);

}  // namespace lockstep::sim
