// The steps behind a forecast of several towers: what each task takes, how the engine runs them,
// and what waits. Used by multimodal_forecast.cc alone.
#pragma once

#include <vector>

#include "sim/multimodal/multimodal_forecast.h"

namespace lockstep::sim {

// Shares of the job's GPU time that do something.
struct WorkShares {
  double llm = 0, recompute = 0, host = 0, collectives = 0, handover = 0, offload = 0;
  std::vector<double> encoders;
  double exchange = 0, update = 0;
};

// Means over the drawn steps.
struct SimulatedSteps {
  double seconds = 0, shortest = 0, longest = 0;
  double pipeline_seconds = 0, encode_seconds = 0, exchange_seconds = 0, update_seconds = 0;
  double samples = 0, tokens = 0, padding = 0, cut = 0;
  double flops = 0;  // of a step
  std::vector<MultimodalForecast::ItemFigures> items;
  WorkShares shares;
  LostTime lost;
  std::vector<PlaceFigures> places;
  std::vector<PlaceMemory> memory;
};

// A plan on its machines. Both outlive it.
struct PricedPlan {
  const MultimodalPlan* plan = nullptr;
  const CostParameters* cost = nullptr;
};
// The steps of each plan, step by step: what plans draw or deal alike is drawn and dealt once.
// O(steps x replicas x micro-batches x stages). Errors: draw_sequences()'s, make_pipeline()'s, a
// micro-batch that takes a stage longer than kLongestPiece, too many tasks.
std::vector<Result<SimulatedSteps>> simulate_each(const std::vector<PricedPlan>& plans);
// The first step of one.
Result<StepPicture> draw_first_step(const MultimodalPlan& plan, const CostParameters& cost);

}  // namespace lockstep::sim
