// Layers over sequences of mixed lengths.
#pragma once

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

}  // namespace lockstep::sim
