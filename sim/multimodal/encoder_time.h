// What an encoder takes for the items of a rank, and a layer for sequences of mixed lengths.
#pragma once

#include <cstdint>

#include "sim/multimodal/dealt_step.h"
#include "sim/multimodal/multimodal_plan.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// Times of a layer for sequences that are packed without padding. `tokens`: the sum of their
// lengths; `squares`: the sum of the squares of their lengths. Attention takes time in proportion
// to the squares, at the rate of a sequence of `reference` tokens. Everything else takes as long as
// for one sequence of all tokens, in whole tiles of 128. If all sequences have the reference's
// length, the result is that of layer_times(). layout's micro_batch and sequence are not used.
LayerTimes mixed_layer_times(const Transformer& model, TrainingPlan layout,
                             const CostParameters& cost, double tokens, double squares,
                             std::int64_t reference);

// Seconds of one rank for a load of an encoder and its projector, on `layout.tensor` GPUs.
struct TowerTime {
  double forward = 0, backward = 0;
};
// Items are computed without padding between them (as FlashAttention's variable lengths): products
// by all tokens together, attention by the sum of squares. Tokens count in whole tiles of 128, so
// that more never take less. `exchange`: of a layer (layer_exchange()). `share`: of its layers; the
// projector goes with the last of them.
TowerTime encoder_time(const EncoderTower& tower, const TrainingPlan& layout,
                       std::int64_t llm_hidden, const CostParameters& cost,
                       const LayerExchange& exchange, const EncoderLoad& load, double share = 1,
                       bool projector = true);

}  // namespace lockstep::sim
