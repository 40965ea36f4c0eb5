// Which collectives the ranks of an encoder make, as far as that depends on their data: what
// modality_check.h decides by, and modality_run.h writes down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/multimodal/dealt_step.h"

namespace lockstep::sim {

// Whether the encoder gathers its parameters in each micro-batch.
bool gathers_as_it_runs(const EncoderTower& tower);

// Whether what the encoder calls depends on whether a rank has items.
bool calls_follow_items(const EncoderTower& tower);

// Whether its calls are among those of the LLM's micro-batches, on the same GPUs.
bool gathers_beside_llm(const EncoderTower& tower);

// How many of the LLM's replicas, one after the other, meet in calls of each micro-batch; 1: each
// runs by itself until the gradients are summed.
std::size_t replicas_that_meet(const MultimodalPlan& plan);

// By rank of the encoder, over all units: in which micro-batches it makes calls.
std::vector<std::vector<bool>> micro_batches_with_calls(
    const EncoderTower& tower, const std::vector<std::vector<std::vector<EncoderLoad>>>& units);

// How many micro-batches have calls.
std::int64_t count_passes(const std::vector<bool>& calls);

}  // namespace lockstep::sim
