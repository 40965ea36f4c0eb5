// What the data-parallel ranks of each place exchange in a step, tower by tower, and with which
// GPUs.
//
// GPUs are numbered those of the LLM first, as in a transformer's plan (plan_network.h), then those
// of encoders on their own: tensor rank first, then data and stage.
#pragma once

#include <vector>

#include "sim/multimodal/places.h"
#include "sim/transformer/plan_network.h"

namespace lockstep::sim {

struct PlaceExchange {
  StageExchange step;  // the LLM's, those of encoders in its tasks, those on every GPU
  StageOnNetwork on_network;
};

// By place. Gradients that a tower's plan overlaps go in a bucket for each layer.
std::vector<PlaceExchange> place_exchanges(const TowerTimes& towers,
                                           const std::vector<Place>& places);

// The GPUs of an LLM's stage, and those of an encoder's own stage, in all replicas.
GpuRange stage_gpus(const TrainingPlan& llm, std::int32_t stage);
GpuRange own_gpus(const MultimodalPlan& plan, std::size_t encoder, std::int32_t stage);

}  // namespace lockstep::sim
