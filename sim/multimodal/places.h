// Where the towers of a plan are: its places, each the GPUs that are one stage of every pipeline,
// and the parameters that a GPU of a place holds.
#pragma once

#include "sim/multimodal/task_times.h"

namespace lockstep::sim {

// In the order of the pipeline: stages of encoders' own, then those of the LLM. `step`: whose items
// a balanced split goes by.
std::vector<Place> make_places(const TowerTimes& towers, const DealtStep& step);

// How many of `places` are encoders' own.
std::int32_t own_stages(const std::vector<Place>& places);

// Parameters on a GPU: of the LLM, of an encoder's layers, of its projector, and of these two
// together what is trained.
RankParameters llm_count(const TowerTimes& towers, const Place& place);
double encoder_count(const TowerTimes& towers, const Place& place, std::size_t encoder);
double projector_count(const TowerTimes& towers, const Place& place, std::size_t encoder);
double trained_encoder_count(const TowerTimes& towers, const Place& place, std::size_t encoder);

}  // namespace lockstep::sim
